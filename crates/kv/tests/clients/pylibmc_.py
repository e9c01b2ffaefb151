"""The commands that pylibmc (libmemcached) sends, each with the answer that memcached gives; over several servers it spreads keys by ketama."""
import sys

import pylibmc

client = pylibmc.Client(sys.argv[1:], behaviors={"cas": True, "ketama": True, "tcp_nodelay": True})
assert client.set("lib:a", b"v" * 200_000)
assert client.get("lib:a") == b"v" * 200_000
assert not client.add("lib:a", b"x")
assert client.set("lib:n", 110)
assert client.incr("lib:n", 5) == 115 and client.decr("lib:n", 200) == 0
assert client.set("lib:s", "b") and client.append("lib:s", "c") and client.prepend("lib:s", "a")
assert client.get("lib:s") == "abc"
value, cas = client.gets("lib:s")
assert client.set("lib:s", "other")
assert not client.cas("lib:s", "late", cas)
value, cas = client.gets("lib:s")
assert client.cas("lib:s", "in time", cas)
assert client.set_multi({f"lib:{i}": i for i in range(50)}) == []
assert client.get_multi([f"lib:{i}" for i in range(60)]) == {f"lib:{i}": i for i in range(50)}
assert client.touch("lib:s", 100)
assert client.delete("lib:s") and not client.delete("lib:s")
assert client.get("lib:s") is None
assert client.get("struck") == b"balance 1000"
print("ok")
