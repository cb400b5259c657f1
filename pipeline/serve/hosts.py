"""Where the page and the service listen, and the names that they answer to.

By any other name nothing is served: a foreign page could have its own name lead to this machine (DNS rebinding).
"""

import ipaddress
import os
import re
import socket
from collections.abc import Sequence

import psutil

from pipeline.errors import RecipeError

LOCAL = ("localhost", "127.0.0.1", "::1")
_EVERYWHERE = ("0.0.0.0", "::")
_NAME = re.compile(r"(\*\.)?[\w-]+(\.[\w-]+)*\.?|\*")


def names_of(address: str, others: Sequence[str]) -> list[str]:
    """All names that a server on an address is called by.

    Args:
        address: that it listens on; `0.0.0.0` and `::` are all of this machine, which add its names and addresses.
        others: further names, as of a proxy; `*.example` stands for all below, `*` turns the check off.

    Raises:
        RecipeError: one of them can be no name of a host.
    """
    if not address:
        raise RecipeError("--address is empty; expected an address such as 127.0.0.1, or 0.0.0.0 for all networks")
    if wrong := [name for name in others if not (_NAME.fullmatch(name) or _is_address(name))]:
        raise RecipeError(f"--hosts {wrong[0]!r}: not the name of a host; expected names such as photos.example, "
                          "without a port")  # fmt: skip
    own = _of_this_machine() if address in _EVERYWHERE else []
    return list(dict.fromkeys([*LOCAL, address, *own, *others, *map(_in_ascii, others)]))


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _in_ascii(name: str) -> str:
    """A name as browsers send it: `bücher.example` is `xn--bcher-kva.example`."""
    try:
        return name.encode("idna").decode()
    except UnicodeError:
        return name


def listening(command: str, address: str, port: int) -> socket.socket:
    """A socket of an address; of TCP by name, else asyncio lets small answers wait 40 ms for more (Nagle).

    Raises:
        RecipeError: the address or port cannot be used; it names the command.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, os.name == "posix")
        made.bind((address, port))
        made.listen()
    except (OSError, OverflowError) as error:
        made.close()
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise RecipeError(f"{command}: {address}, port {port}: {reason}; choose another address or port") from None
    return made


def _of_this_machine() -> list[str]:
    """Its names, and its addresses on all networks."""
    found = [one.address for some in psutil.net_if_addrs().values() for one in some
             if one.family in (socket.AF_INET, socket.AF_INET6)]  # fmt: skip
    return [socket.gethostname(), socket.getfqdn(), *(address.partition("%")[0] for address in found)]
