"""The accounts that the gateway needs, exactly: what README tells operators to create.

Knows: ACL rules.
Must not know: what uses them.
"""

USER, PASSWORD = "gateway", "s3cret-of-the-gateway"

READS = "+evalsha +script|load +zcard +zscore +zrank +zrevrank +zrange +zrevrange +zcount +hmget +exists"
"""What a read of a board is made of; scripts need the commands inside them. Writing commands are not among them."""

HEALTH = "+info +ping +client|setname"

CLUSTER = "+readonly +asking +cluster|info +cluster|slots"
"""Only on cluster nodes."""

DATABASE = "+select"
"""Only for a database other than 0."""

SENTINEL = "+sentinel|get-master-addr-by-name +sentinel|master +sentinel|slaves +subscribe +ping"
CHANNELS = "&+switch-master &+slave &+sdown &-sdown"


def account(*commands: str, keys: str = "~*") -> str:
    """Return the ACL line of the gateway's user with these commands and no other, and no channel."""
    return f"user {USER} on >{PASSWORD} {keys} resetchannels -@all {' '.join(commands)}"


FIXED_ACCOUNT = account(READS, HEALTH)
CLUSTER_ACCOUNT = account(READS, HEALTH, CLUSTER)
SENTINEL_ACCOUNT = account(SENTINEL, CHANNELS, keys="resetkeys")
