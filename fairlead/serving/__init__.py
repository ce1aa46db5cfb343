"""How workloads are reached from outside: one picture of the Endpoints of all regions, told by DNS and as JSON, and a prober that
measures what is really served. Reads planes, writes none; decides nothing about traffic. Composed by the root
and the command line."""
