"""The metadata servers of Google, AWS and Azure on one port, for one machine."""
import json
import secrets
import time
import urllib.parse


class Reply:
    def __init__(self, status, body, **headers):
        self.status, self.body, self.headers = status, body, headers


class Metadata:
    """Serves one machine, and announces its notices."""

    def __init__(self, cloud, machine):
        self.cloud, self.machine = cloud, machine
        self.imds_tokens = {}
        self.azure_names = ["self"]

    def operation_of(self, method, path):
        if path.endswith("/token") and "service-accounts" in path:
            return "google_token"
        if method == "POST" and path.endswith("/scheduledevents"):
            return "start_event"
        for word in ("preempted", "scheduledevents", "instance-action", "rebalance", "api/token",
                     "security-credentials"):
            if word in path:
                return word
        return "look"

    def handle(self, method, target, headers, body):
        path, _, query = target.partition("?")
        query = dict(urllib.parse.parse_qsl(query))
        if path.startswith("/computeMetadata/v1/"):
            return self._google(path, query, headers)
        if path.startswith("/metadata/"):
            return self._azure(method, path, query, headers, body)
        return self._aws(method, path, headers)

    # --- Google: every request needs a header; a GET may wait for a change

    def _google(self, path, query, headers):
        if headers.get("Metadata-Flavor") != "Google" or headers.get("X-Forwarded-For"):
            return Reply(403, "Missing Metadata-Flavor:Google header")
        path = path[len("/computeMetadata/v1/"):]
        if path == "instance/service-accounts/default/token":
            with self.cloud.lock:
                return Reply(200, json.dumps(self.cloud.google.give()))
        if path == "project/project-id":
            return Reply(200, self.cloud.gce.project)
        if path == "instance/name":
            return Reply(200, self.machine.name)
        if path == "instance/zone":
            return Reply(200, f"projects/1/zones/{self.machine.zone}")
        if path == "instance/preempted":
            return self._preempted(query)
        return Reply(404, "")

    def _preempted(self, query):
        notice = self.machine.notice
        with notice.changed:
            if query.get("wait_for_change") == "true":
                seen = query.get("last_etag", "0")
                end = time.monotonic() + float(query.get("timeout_sec", "3600"))
                while str(notice.etag) == seen and time.monotonic() < end:
                    notice.changed.wait(end - time.monotonic())
            return Reply(200, "TRUE" if notice.preempted else "FALSE", ETag=str(notice.etag))

    # --- AWS: a session token first (IMDSv2)

    def _aws(self, method, path, headers):
        if path == "/latest/api/token":
            ttl = headers.get("X-aws-ec2-metadata-token-ttl-seconds", "")
            if method != "PUT" or not ttl.isdigit() or not 1 <= int(ttl) <= 21600 \
                    or headers.get("X-Forwarded-For"):
                return Reply(403 if method == "PUT" else 405, "")
            token = secrets.token_urlsafe(32)
            self.imds_tokens[token] = time.time() + int(ttl)
            return Reply(200, token)
        if self.imds_tokens.get(headers.get("X-aws-ec2-metadata-token"), 0) < time.time():
            return Reply(401, "")
        notice = self.machine.notice
        stamp = lambda t: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(t))
        if path == "/latest/meta-data/instance-id":
            return Reply(200, self.machine.name)
        if path == "/latest/meta-data/spot/instance-action" and notice.action_time:
            return Reply(200, json.dumps({"action": "terminate",
                                          "time": stamp(notice.action_time)}))
        if path == "/latest/meta-data/events/recommendations/rebalance" and notice.rebalance_time:
            return Reply(200, json.dumps({"noticeTime": stamp(notice.rebalance_time)}))
        roles = "/latest/meta-data/iam/security-credentials/"
        if path == roles and self.cloud.role:
            return Reply(200, self.cloud.role)
        if self.cloud.role and path == roles + self.cloud.role:
            key, secret, token = self.cloud.role_keys()
            return Reply(200, json.dumps({
                "Code": "Success", "Type": "AWS-HMAC", "AccessKeyId": key,
                "SecretAccessKey": secret, "Token": token, "LastUpdated": stamp(time.time()),
                "Expiration": stamp(time.time() + self.cloud.role_lifetime)}))
        return Reply(404, "")

    # --- Azure

    def _azure(self, method, path, query, headers, body):
        if headers.get("Metadata") != "true":
            return Reply(400, json.dumps({"error": "Required metadata header not specified"}))
        notice = self.machine.notice
        if path == "/metadata/scheduledevents" and query.get("api-version") == "2020-07-01":
            if method == "POST":
                return self._start_events(body)
            with notice.changed:
                return Reply(200, json.dumps({"DocumentIncarnation": notice.azure_incarnation,
                                              "Events": notice.azure_events}))
        if path == "/metadata/instance/compute/name":
            return Reply(200, self.azure_names[0])
        return Reply(404, "")

    def _start_events(self, body):
        """Approves events. An approved event starts at once, for all machines that it concerns."""
        notice = self.machine.notice
        try:
            wanted = {request["EventId"] for request in json.loads(body)["StartRequests"]}
        except (ValueError, KeyError, TypeError):
            return Reply(400, json.dumps({"error": "malformed"}))
        with notice.changed:
            known = [event for event in notice.azure_events if event["EventId"] in wanted]
            if len(known) < len(wanted):
                return Reply(400, json.dumps({"error": "no such event"}))
            for event in known:
                event["EventStatus"], event["NotBefore"] = "Started", ""
            notice.azure_incarnation += 1
        return Reply(200, "")
