"""The server's listening socket, with clear errors when the address cannot be used."""

import errno
import socket

from holdfast.kernel.errors import NeedsOperator


def listening_socket(host: str, port: int) -> socket.socket:
    """A socket that listens already; connections queue until they are served."""
    try:
        # IPv4 first, so that "localhost" is the same for browsers and curl on every machine.
        found = sorted(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM), key=lambda info: info[0])
        family, kind, protocol, _, address = found[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            # Not left to the server: until a process listens, a second one could bind the same port.
            listener.listen()
        except OSError:
            listener.close()
            raise
    except (OSError, UnicodeError) as error:
        raise NeedsOperator(_listen_problem(host, port, error)) from error
    return listener


def _listen_problem(host: str, port: int, error: OSError | UnicodeError) -> str:
    if isinstance(error, socket.gaierror | UnicodeError):
        return f"host {host} cannot be resolved; choose another with --host, for example --host 127.0.0.1"
    if error.errno == errno.EADDRINUSE:
        return f"port {port} on {host} is in use; stop the other process, or choose another with --port (0 for any)"
    if error.errno == errno.EACCES:
        return f"port {port} on {host} needs privileges; choose a port from 1024 up with --port"
    return f"cannot listen on port {port} of {host}: {error.strerror}; choose another with --host and --port"


def url_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if listener.family == socket.AF_INET6 else f"http://{host}:{port}"
