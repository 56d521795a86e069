"""Makes a certificate authority, valid and invalid certificates of four servers, and the key of a
service account, with `openssl`. That takes longer than starting a fake cloud, so all clouds that a
user starts within half a day share these files, in the folder for temporary files.
"""
import fcntl
import os
import subprocess
import tempfile
import time

HALF_DAY_S = 43200  # the certificates are valid for two days
SERVERS = ("good", "other_authority", "wrong_host", "expired")


def _openssl(*args):
    subprocess.run(["openssl", *args], check=True, capture_output=True)


def _authority(folder, name):
    key, crt = os.path.join(folder, name + ".key"), os.path.join(folder, name + ".pem")
    _openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
             "-keyout", key, "-out", crt, "-days", "2", "-subj", f"/CN={name}")
    return crt, key


def _server(folder, name, authority, names, days="2"):
    crt, key = os.path.join(folder, name + ".pem"), os.path.join(folder, name + ".key")
    request, extensions = os.path.join(folder, name + ".csr"), os.path.join(folder, name + ".ext")
    with open(extensions, "w") as f:
        f.write(f"subjectAltName={names}\n")
    _openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
             "-keyout", key, "-out", request, "-subj", f"/CN={name}")
    _openssl("x509", "-req", "-in", request, "-CA", authority[0], "-CAkey", authority[1],
             "-CAcreateserial", "-out", crt, "-days", days, "-extfile", extensions)


def _account(folder):
    private, public = os.path.join(folder, "account.key"), os.path.join(folder, "account.pub")
    _openssl("genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", private)
    _openssl("pkey", "-in", private, "-pubout", "-out", public)


def _make(folder):
    trusted, other = _authority(folder, "trusted"), _authority(folder, "other")
    here = "DNS:localhost,IP:127.0.0.1"
    _server(folder, "good", trusted, here)
    _server(folder, "other_authority", other, here)
    _server(folder, "wrong_host", trusted, "DNS:cloud.example")
    _server(folder, "expired", trusted, here, days="-1")
    _account(folder)


def make():
    """Returns {name: (certificate, key)} of the servers, with two more entries: "authority" is the
    file of the trusted authority, and "account" has the private and the public key of the service
    account."""
    folder = os.path.join(tempfile.gettempdir(),
                          f"mayfly-fake-keys-{os.geteuid()}-{int(time.time()) // HALF_DAY_S}")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    if os.stat(folder).st_uid != os.geteuid():
        raise PermissionError(f"{folder} is another user's")
    made = os.path.join(folder, "made")
    with open(os.path.join(folder, "lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other clouds wait until the files are made
        if not os.path.exists(made):
            _make(folder)
            open(made, "w").close()
    pair = lambda name, *ends: tuple(os.path.join(folder, name + end) for end in ends)
    return {"authority": os.path.join(folder, "trusted.pem"),
            "account": pair("account", ".key", ".pub"),
            **{name: pair(name, ".pem", ".key") for name in SERVERS}}
