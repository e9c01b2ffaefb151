"""The commands that pymemcache sends, each with the answer that memcached gives."""
import sys

from pymemcache.client.base import Client

host, port = sys.argv[1].rsplit(":", 1)
client = Client((host, int(port)), timeout=30, default_noreply=False)
large = b"v" * 200_000
assert client.set("py:a", large, flags=7)
assert client.get("py:a") == large
assert not client.add("py:a", b"x")
assert client.replace("py:a", b"1") and client.append("py:a", b"0") and client.prepend("py:a", b"1")
assert client.incr("py:a", 5) == 115
assert client.decr("py:a", 200) == 0
value, cas = client.gets("py:a")
assert client.set("py:a", b"other")
assert client.cas("py:a", b"late", cas) is False
value, cas = client.gets("py:a")
assert client.cas("py:a", b"in time", cas)
assert client.cas("py:none", b"x", cas) is None
assert client.touch("py:a", 100)
assert client.set_many({f"py:{i}": str(i) for i in range(50)}) == []
assert client.get_many([f"py:{i}" for i in range(60)]) == {f"py:{i}": str(i).encode() for i in range(50)}
client.set("py:quiet", b"1", noreply=True)
client.incr("py:quiet", 1, noreply=True)
assert client.get("py:quiet") == b"2"
assert client.delete("py:a") and not client.delete("py:a")
assert client.get("py:a") is None
assert b"steadfast" in client.version()
assert client.stats()[b"curr_items"] >= 50
assert client.get("struck") == b"balance 1000"
print("ok")
