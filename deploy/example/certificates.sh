#!/bin/sh
# Makes every certificate of the example in FOLDER, with the names of hosts.env beside this script (or of the environment).
# Run it once, on the machine that keeps ca.key; then copy to each host what README.md names.
#
#   sh certificates.sh FOLDER
set -eu
folder=$1
here=$(dirname "$0")
if [ -z "${GLOBAL_A:-}" ]; then
  . "$here/hosts.env"
fi

fairlead certs init "$folder"

# Two for each server: what it shows to whoever connects, and by what it is known to other servers. The latter bears the name
# that the server's configuration gives it.
issue() { # NAME ADDRESS OPTIONS...
  name=$1 address=$2
  shift 2
  fairlead certs issue "$folder" server "$name" --host "${address%:*}"
  fairlead certs issue "$folder" component "$name" --file "$name-component" --role plane-server "$@"
}
issue global-a "$GLOBAL_A" --role front-door
issue global-b "$GLOBAL_B" --role front-door
issue global-c "$GLOBAL_C" --role front-door
issue us-east-a "$US_EAST_A" --role mirror --region us-east
issue us-east-b "$US_EAST_B" --role mirror --region us-east

# One per node. Instead of these, nodes can join with a token: docs/operations/deploy.md.
fairlead certs issue "$folder" agent us-east-node-1 --region us-east
fairlead certs issue "$folder" agent us-east-node-2 --region us-east

# DNS and the endpoints documents: reads Endpoints of every region, and nothing else.
fairlead certs issue "$folder" component endpoints --role endpoint-reader

# The first person; seed/global/10-access.yaml says what this one may do.
fairlead certs issue "$folder" user admin
