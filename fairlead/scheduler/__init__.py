"""The forward path: queue, snapshot, cycle. Proposes placements to the authority and authorises none."""
