"""Authenticates requests: AWS SigV4 signatures and Google's tokens, with Python's library only.

Written from the published descriptions and independently of the project's signing code, so that
each tests the other.
"""
import base64
import calendar
import hashlib
import hmac
import json
import secrets
import subprocess
import tempfile
import time
import urllib.parse


class Denied(Exception):
    """The text is the cloud's error code."""


def _hmac(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def check_aws(method, target, headers, body, secrets_by_key, tokens_by_key, region, now):
    """Returns the access key of a correctly signed EC2 request; raises Denied otherwise."""
    scheme, _, rest = headers.get("Authorization", "").partition(" ")
    if scheme != "AWS4-HMAC-SHA256":
        raise Denied("AuthFailure")
    parts = dict(part.strip().split("=", 1) for part in rest.split(",") if "=" in part)
    try:
        access_key, day, signed_region, service, end = parts["Credential"].split("/")
        signed, signature = parts["SignedHeaders"].split(";"), parts["Signature"]
        sent = calendar.timegm(time.strptime(headers["X-Amz-Date"], "%Y%m%dT%H%M%SZ"))
    except (KeyError, ValueError, TypeError):
        raise Denied("AuthFailure") from None
    if (signed_region, service, end) != (region, "ec2", "aws4_request"):
        raise Denied("AuthFailure")
    if not {"host", "x-amz-date"} <= set(signed) or access_key not in secrets_by_key:
        raise Denied("AuthFailure")
    if abs(now - sent) > 300 or headers["X-Amz-Date"][:8] != day:
        raise Denied("RequestExpired")
    if headers.get("X-Amz-Security-Token") != tokens_by_key.get(access_key):
        raise Denied("AuthFailure")
    path, _, query = target.partition("?")
    pairs = sorted(urllib.parse.parse_qsl(query, keep_blank_values=True))
    quote = lambda text: urllib.parse.quote(text, safe="-_.~")
    canonical = "\n".join(
        [method, path, "&".join(f"{quote(k)}={quote(v)}" for k, v in pairs)]
        + [f"{name}:{' '.join(headers[name].split())}" for name in signed]
        + ["", ";".join(signed), hashlib.sha256(body).hexdigest()])
    scope = f"{day}/{region}/ec2/aws4_request"
    text = "\n".join(["AWS4-HMAC-SHA256", headers["X-Amz-Date"], scope,
                      hashlib.sha256(canonical.encode()).hexdigest()])
    key = ("AWS4" + secrets_by_key[access_key]).encode()
    for part in (day, region, "ec2", "aws4_request"):
        key = _hmac(key, part)
    if not hmac.compare_digest(_hmac(key, text).hex(), signature):
        raise Denied("AuthFailure")
    return access_key


def _decode(part):
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


class GoogleTokens:
    """Issues access tokens, and checks whether a token is valid."""

    def __init__(self, public_key_file, token_uri):
        self.public_key_file, self.token_uri = public_key_file, token_uri
        self.expires = {}
        self.lifetime = 3600
        self.given = 0

    def give(self):
        token = "ya29." + secrets.token_urlsafe(24)
        self.expires[token] = time.time() + self.lifetime
        self.given += 1
        return {"access_token": token, "expires_in": self.lifetime, "token_type": "Bearer"}

    def revoke_all(self):
        self.expires.clear()

    def holds(self, authorization):
        scheme, _, token = (authorization or "").partition(" ")
        return scheme == "Bearer" and self.expires.get(token, 0) > time.time()

    def exchange(self, assertion, now):
        """Returns a token for a JWT; raises Denied if its signature or a claim is wrong."""
        try:
            head, claims, signature = assertion.split(".")
            header, fields = json.loads(_decode(head)), json.loads(_decode(claims))
            signed = _decode(signature)
        except (ValueError, TypeError):
            raise Denied("invalid_grant") from None
        if header.get("alg") != "RS256" or not self._verified(f"{head}.{claims}", signed):
            raise Denied("invalid_grant")
        if (fields.get("aud") != self.token_uri or not fields.get("scope")
                or not fields.get("iss") or fields["exp"] - fields["iat"] > 3600
                or not fields["iat"] - 300 <= now <= fields["exp"]):
            raise Denied("invalid_grant")
        return self.give()

    def _verified(self, text, signature):
        with tempfile.NamedTemporaryFile() as file:
            file.write(signature)
            file.flush()
            return subprocess.run(
                ["openssl", "dgst", "-sha256", "-verify", self.public_key_file, "-signature",
                 file.name], input=text.encode(), capture_output=True).returncode == 0
