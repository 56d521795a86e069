"""A certificate authority and four servers' certificates, good and bad, made with `openssl`."""
import os
import subprocess


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
    return crt, key


def make(folder):
    """{name: (certificate, key)} of the servers, and under "authority" the file to trust."""
    trusted, other = _authority(folder, "trusted"), _authority(folder, "other")
    here = "DNS:localhost,IP:127.0.0.1"
    return {
        "authority": trusted[0],
        "good": _server(folder, "good", trusted, here),
        "other_authority": _server(folder, "other_authority", other, here),
        "wrong_host": _server(folder, "wrong_host", trusted, "DNS:cloud.example"),
        "expired": _server(folder, "expired", trusted, here, days="-1"),
    }
