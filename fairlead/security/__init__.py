"""Credentials and secrets: certificates, tokens, sealed data, and the roles in force. Who may do what with them is decided in
fairlead/decide/access.py; used by the API, the agent and the command line."""
