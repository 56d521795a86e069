"""The part of Compute Engine's v1 REST interface that Mayfly and gcloud use."""
import json
import re
import time
import urllib.parse
import uuid

from machines import Machine

STATUS = {"starting": "STAGING", "running": "RUNNING", "stopping": "STOPPING",
          "stopped": "TERMINATED"}


class GceError(Exception):
    def __init__(self, status, reason, message, details=None):
        super().__init__(message)
        self.status, self.reason, self.message, self.details = status, reason, message, details

    def body(self):
        error = {"code": self.status, "message": self.message,
                 "errors": [{"message": self.message, "domain": "global", "reason": self.reason}]}
        if self.details:
            error["details"] = self.details
        return {"error": error}


class Operation:
    def __init__(self, name, zone, target, kind):
        self.name, self.zone, self.target, self.kind = name, zone, target, kind
        self.polls_left = 0
        self.error = None
        self.on_done = None
        self.done = False


class Gce:
    """Callers hold the cloud's lock."""

    def __init__(self, cloud, project):
        self.cloud, self.project = cloud, project
        self.operations, self.by_request = {}, {}
        self.inserts = 0

    def operation_of(self, method, path):
        """The operation's name in fault rules and in the log of requests."""
        if path.endswith("/wait"):
            return "wait"
        if "/operations/" in path:
            return "operation"
        if "/aggregated/" in path:
            return "list"
        if path.endswith("/instances"):
            return "insert" if method == "POST" else "list"
        if "/instances/" in path:
            return "delete" if method == "DELETE" else "get"
        return "look"

    def handle(self, method, target, headers, body, fault):
        if not self.cloud.google.holds(headers.get("Authorization")):
            raise GceError(401, "authError", "Request had invalid authentication credentials.")
        self.cloud.machines.collect()
        if fault is not None:
            self._fail(fault)
        path, _, query = target.partition("?")
        query = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
        image = re.fullmatch(r"/compute/v1/projects/[^/]+/global/images/(?:family/)?([^/]+)", path)
        if image and method == "GET":
            return self._image(image.group(1))
        match = re.fullmatch(r"/compute/v1/projects/([^/]+)(/.*)?", path)
        if not match or match.group(1) != self.project:
            raise GceError(404, "notFound", f"The resource '{path}' was not found")
        rest = match.group(2) or ""
        for pattern, allowed, function in (
                (r"", "GET", self._project),
                (r"/aggregated/instances", "GET", self._aggregated),
                (r"/regions/([^/]+)", "GET", self._region),
                (r"/zones/([^/]+)", "GET", self._zone),
                (r"/zones/([^/]+)/machineTypes/([^/]+)", "GET", self._machine_type),
                (r"/zones/([^/]+)/instances", "POST", self._insert),
                (r"/zones/([^/]+)/instances/([^/]+)", "GET", self._get),
                (r"/zones/([^/]+)/instances/([^/]+)", "DELETE", self._delete),
                (r"/zones/([^/]+)/operations/([^/]+)", "GET", self._poll),
                (r"/zones/([^/]+)/operations/([^/]+)/wait", "POST", self._wait)):
            found = re.fullmatch(pattern, rest)
            if found and method == allowed:
                return function(*found.groups(), query=query, body=body, fault=fault)
        raise GceError(404, "notFound", f"The resource '{path}' was not found")

    def _fail(self, fault):
        """Raises the errors that the request itself answers."""
        kind = fault["kind"]
        if kind == "status":
            raise GceError(fault["status"], fault.get("reason", "backendError"), "scripted")
        if kind == "throttle":
            raise GceError(403, "rateLimitExceeded", "Rate Limit Exceeded")
        if kind == "forbidden":
            raise GceError(403, "forbidden", "Required 'compute.instances.create' permission")
        if kind == "quota_now":
            raise GceError(403, "quotaExceeded", "Quota 'PREEMPTIBLE_CPUS' exceeded. Limit: 8.0")

    def _project(self, query, body, fault):
        return {"kind": "compute#project", "name": self.project, "quotas": []}

    def _image(self, name):
        if name not in self.cloud.images:
            raise GceError(404, "notFound", f"The resource 'images/{name}' was not found")
        return {"kind": "compute#image", "name": name, "status": "READY"}

    def _region(self, region, query, body, fault):
        return {"kind": "compute#region", "name": region, "quotas": [
            {"metric": metric, "usage": float(usage), "limit": float(limit)}
            for metric, (usage, limit) in self.cloud.quotas.items()]}

    def _zone(self, zone, query, body, fault):
        if zone not in self.cloud.zones:
            raise GceError(404, "notFound", f"The resource 'zones/{zone}' was not found")
        return {"kind": "compute#zone", "name": zone, "status": "UP"}

    def _machine_type(self, zone, name, query, body, fault):
        self._zone(zone, query, body, fault)
        if name not in self.cloud.machine_types:
            raise GceError(404, "notFound", f"The resource 'machineTypes/{name}' was not found")
        return {"kind": "compute#machineType", "name": name, "guestCpus": 8}

    def _request_key(self, query):
        text = query.get("requestId")
        if text is None:
            return None
        try:
            if uuid.UUID(text).int == 0 or str(uuid.UUID(text)) != text:
                raise ValueError
        except ValueError:
            raise GceError(400, "invalid", f"Invalid value for field 'requestId': '{text}'") \
                from None
        return text

    def _insert(self, zone, query, body, fault):
        self._zone(zone, query, body, fault)
        key = self._request_key(query)
        if key in self.by_request and key is not None:
            return self._describe(self.by_request[key])
        try:
            spec = json.loads(body)
            name, machine_type = spec["name"], spec["machineType"].rpartition("/")[2]
            spec["disks"][0]["initializeParams"]["sourceImage"]
            spec["networkInterfaces"][0]
        except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
            raise GceError(400, "required", f"Required field: {error}") from None
        if not re.fullmatch(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", name):
            raise GceError(400, "invalid", f"Invalid value for field 'resource.name': '{name}'")
        if machine_type not in self.cloud.machine_types:
            raise GceError(400, "invalid", f"Invalid value for 'machineType': {machine_type}")
        known = self.cloud.machines.by_name.get(name)
        if known is not None and known.state != "gone":
            raise GceError(409, "alreadyExists", f"The resource '{name}' already exists")
        scheduling = spec.get("scheduling", {})
        spot = scheduling.get("provisioningModel") == "SPOT"
        if spot and scheduling.get("automaticRestart", True):
            raise GceError(400, "invalid", "Spot instances cannot restart automatically")
        has_gpu = spec.get("guestAccelerators") or re.match(r"a[2-4]-|g2-", machine_type)
        if has_gpu and scheduling.get("onHostMaintenance") != "TERMINATE":
            raise GceError(400, "invalid", "Instances with guest accelerators do not support live "
                           "migration.")
        items = {item["key"]: item["value"] for item in spec.get("metadata", {}).get("items", [])}
        machine = self.cloud.machines.add(Machine(
            name, "gce", zone, machine_type, "spot" if spot else "on_demand",
            spec.get("labels", {}), items.get("startup-script", "")))
        machine.spec = spec
        self.inserts += 1
        operation = self._begin("insert", zone, name)
        if spot and self.cloud.stock is not None:
            if self.cloud.stock == 0:
                fault = fault or {"kind": "stock_out"}
            else:
                self.cloud.stock -= 1
        if fault is not None and fault["kind"] in ("stock_out", "quota"):
            machine.doomed = True
            operation.error = self._late_error(fault, zone)
            operation.on_done = lambda: self.cloud.machines.end(machine, fault["kind"])
        else:
            operation.on_done = lambda: self.cloud.machines.start(machine)
        if key is not None:
            self.by_request[key] = operation
        return self._describe(operation)

    def _late_error(self, fault, zone):
        """The errors that only the finished operation reports."""
        if fault["kind"] == "quota":
            return {"code": "QUOTA_EXCEEDED", "message": "Quota 'PREEMPTIBLE_NVIDIA_T4_GPUS' "
                    "exceeded.  Limit: 1.0 in region us-central1."}
        return {"code": "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS",
                "message": f"The zone 'projects/p/zones/{zone}' does not have enough resources.",
                "errorDetails": [{"errorInfo": {
                    "reason": "resource_availability", "domain": "compute.googleapis.com",
                    "metadatas": {"zone": zone, "vmType": "n1-standard-8", "attachment": "",
                                  "zonesAvailable": ",".join(fault.get("zones_available", []))}}}]}

    def _begin(self, kind, zone, target):
        operation = Operation(f"operation-{len(self.operations)}", zone, target, kind)
        operation.polls_left = self.cloud.operation_polls
        self.operations[operation.name] = operation
        return operation

    def _advance(self, operation):
        if operation.polls_left > 0:
            operation.polls_left -= 1
        elif not operation.done:
            operation.done = True
            if operation.on_done:
                operation.on_done()

    def _describe(self, operation):
        status = "DONE" if operation.done else "RUNNING"
        answer = {"kind": "compute#operation", "name": operation.name, "status": status,
                  "operationType": operation.kind, "zone": f"{self._base()}/zones/{operation.zone}",
                  "targetLink": f"{self._base()}/zones/{operation.zone}/instances/"
                                f"{operation.target}", "progress": 100 if operation.done else 0,
                  "selfLink": f"{self._base()}/zones/{operation.zone}/operations/{operation.name}"}
        if operation.done and operation.error:
            answer.update(error={"errors": [operation.error]}, httpErrorStatusCode=503,
                          httpErrorMessage="SERVICE UNAVAILABLE")
        return answer

    def _base(self):
        return f"https://www.googleapis.com/compute/v1/projects/{self.project}"

    def _operation(self, zone, name):
        operation = self.operations.get(name)
        if operation is None or operation.zone != zone:
            raise GceError(404, "notFound", f"The resource 'operations/{name}' was not found")
        return operation

    def _poll(self, zone, name, query, body, fault):
        operation = self._operation(zone, name)
        self._advance(operation)
        return self._describe(operation)

    def _wait(self, zone, name, query, body, fault):
        return self._poll(zone, name, query, body, fault)  # the real call may also return early

    def _instance(self, machine):
        return {"kind": "compute#instance", "name": machine.name, "status": STATUS[machine.state],
                "zone": f"{self._base()}/zones/{machine.zone}", "labels": machine.labels,
                "machineType": f"{self._base()}/zones/{machine.zone}/machineTypes/"
                               f"{machine.machine_type}",
                "creationTimestamp": time.strftime("%Y-%m-%dT%H:%M:%S.000-00:00",
                                                   time.gmtime(machine.created)),
                "lastStartTimestamp": time.strftime("%Y-%m-%dT%H:%M:%S.000-00:00",
                                                    time.gmtime(machine.created)),
                "scheduling": machine.spec.get("scheduling", {}),
                "guestAccelerators": machine.spec.get("guestAccelerators", [])}

    def _find(self, zone, name):
        machine = self.cloud.machines.by_name.get(name)
        if machine is None or machine.zone != zone or machine.state == "gone":
            raise GceError(404, "notFound", f"The resource 'instances/{name}' was not found")
        return machine

    def _get(self, zone, name, query, body, fault):
        return self._instance(self._find(zone, name))

    def _aggregated(self, query, body, fault):
        match = re.fullmatch(r'labels\.([a-z0-9_-]+)\s*=\s*"?([a-z0-9_-]+)"?',
                             query.get("filter", ""))
        if query.get("filter") and not match:
            raise GceError(400, "invalid", "Invalid list filter expression.")
        found = [m for m in self.cloud.machines.by_name.values()
                 if m.service == "gce" and m.state != "gone"
                 and (not match or m.labels.get(match.group(1)) == match.group(2))]
        start, size = int(query.get("pageToken") or 0), int(query.get("maxResults", 500))
        size = min(size, self.cloud.page_size)
        items = {f"zones/{zone}": {"warning": {"code": "NO_RESULTS_ON_PAGE"}}
                 for zone in self.cloud.zones}
        for machine in found[start:start + size]:
            here = items[f"zones/{machine.zone}"]
            here.pop("warning", None)
            here.setdefault("instances", []).append(self._instance(machine))
        answer = {"kind": "compute#instanceAggregatedList", "items": items}
        if start + size < len(found):
            answer["nextPageToken"] = str(start + size)
        return answer

    def _delete(self, zone, name, query, body, fault):
        key = self._request_key(query)
        if key is not None and key in self.by_request:
            return self._describe(self.by_request[key])
        machine = self._find(zone, name)
        machine.state = "stopping"
        operation = self._begin("delete", zone, name)
        operation.polls_left = 0
        operation.on_done = lambda: self.cloud.machines.end(machine, "deleted")
        if key is not None:
            self.by_request[key] = operation
        self._advance(operation)
        return self._describe(operation)
