"""The part of EC2's Query interface (2016-11-15) that Mayfly uses, with answers in AWS's format."""
import base64
import time
import urllib.parse
from xml.sax.saxutils import escape

import signatures
from machines import Machine

STATE = {"starting": (0, "pending"), "running": (16, "running"), "stopping": (32, "shutting-down"),
         "gone": (48, "terminated")}


class Ec2Error(Exception):
    def __init__(self, status, code, message):
        super().__init__(message)
        self.status, self.code, self.message = status, code, message

    def body(self):
        return ('<?xml version="1.0" encoding="UTF-8"?>\n<Response><Errors><Error>'
                f"<Code>{escape(self.code)}</Code><Message>{escape(self.message)}</Message>"
                "</Error></Errors><RequestID>00000000-0000-0000-0000-000000000000</RequestID>"
                "</Response>")


FAULTS = {
    "stock_out": (500, "InsufficientInstanceCapacity",
                  "We currently do not have sufficient p3.2xlarge capacity in the Availability "
                  "Zone you requested (eu-west-1a). You can currently get p3.2xlarge capacity by "
                  "not specifying an Availability Zone in your request or choosing {zones}."),
    "quota": (400, "MaxSpotInstanceCountExceeded", "Max spot instance count exceeded"),
    "quota_now": (400, "VcpuLimitExceeded", "You have requested more vCPU capacity than allowed"),
    "throttle": (503, "RequestLimitExceeded", "Request limit exceeded."),
    "forbidden": (403, "UnauthorizedOperation", "You are not authorized to perform this action."),
}


class Ec2:
    """Callers hold the cloud's lock."""

    def __init__(self, cloud, region):
        self.cloud, self.region = cloud, region
        self.by_token = {}
        self.runs = 0

    def handle(self, method, target, headers, body, fault):
        form = dict(urllib.parse.parse_qsl(body.decode(), keep_blank_values=True))
        try:
            signatures.check_aws(method, target, headers, body, self.cloud.aws_secrets,
                                 self.cloud.aws_tokens, self.region, self.cloud.now())
        except signatures.Denied as denied:
            status = 401 if str(denied) == "AuthFailure" else 400
            raise Ec2Error(status, str(denied), "AWS was not able to validate the provided access "
                           "credentials") from None
        if fault is not None and fault["kind"] in FAULTS:
            status, code, message = FAULTS[fault["kind"]]
            raise Ec2Error(status, code, message.format(
                zones=", ".join(fault.get("zones_available", []))))
        if fault is not None and fault["kind"] == "status":
            raise Ec2Error(fault["status"], fault.get("code", "InternalError"), "scripted")
        self.cloud.machines.collect()
        if form.get("Version") != "2016-11-15":
            raise Ec2Error(400, "InvalidParameterValue", "Version")
        action = form.get("Action", "")
        function = {"RunInstances": self._run, "TerminateInstances": self._terminate,
                    "DescribeInstances": self._describe_all}.get(action)
        if function is None:
            raise Ec2Error(400, "InvalidAction", f"The action {action} is not valid")
        return (f'<?xml version="1.0" encoding="UTF-8"?>\n<{action}Response '
                'xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><requestId>r-1</requestId>'
                f"{function(form)}</{action}Response>")

    def _run(self, form):
        token = form.get("ClientToken")
        if len(token or "") > 64:
            raise Ec2Error(400, "InvalidParameterValue", "ClientToken")
        same = {k: v for k, v in form.items() if k != "DryRun"}
        if token in self.by_token:
            before, machines = self.by_token[token]
            if before != same:
                raise Ec2Error(400, "IdempotentParameterMismatch", "the token was used before")
            return self._reservation(machines)
        for name in ("ImageId", "InstanceType", "MinCount", "MaxCount"):
            if name not in form:
                raise Ec2Error(400, "MissingParameter", f"The request must contain {name}")
        if form["InstanceType"] not in self.cloud.machine_types:
            raise Ec2Error(400, "InvalidParameterValue", f"Invalid value '{form['InstanceType']}'")
        if form["ImageId"] not in self.cloud.images:
            raise Ec2Error(400, "InvalidAMIID.NotFound",
                           f"The image id '[{form['ImageId']}]' does not exist")
        zone = form.get("Placement.AvailabilityZone", self.cloud.zones[0])
        if zone not in self.cloud.zones:
            raise Ec2Error(400, "InvalidParameterValue", f"Invalid availability zone: [{zone}]")
        if form.get("DryRun") == "true":
            raise Ec2Error(412, "DryRunOperation", "Request would have succeeded, but the "
                           "DryRun flag is set.")
        count = int(form["MaxCount"])
        alive = sum(1 for m in self.cloud.machines.by_name.values()
                    if m.service == "ec2" and m.state != "gone")
        if self.cloud.server_quota is not None and alive + count > self.cloud.server_quota:
            raise Ec2Error(*FAULTS["quota_now"])  # even if MinCount machines would be allowed
        spot = form.get("InstanceMarketOptions.MarketType") == "spot"
        if spot and self.cloud.stock is not None:
            if self.cloud.stock < int(form["MinCount"]):
                status, code, message = FAULTS["stock_out"]
                raise Ec2Error(status, code, message.format(zones="another"))
            count = min(count, self.cloud.stock)
            self.cloud.stock -= count
        startup = base64.b64decode(form.get("UserData", "")).decode()
        machines = []
        for _ in range(count):
            machine = self.cloud.machines.add(Machine(
                f"i-{len(self.cloud.machines.by_name):017x}", "ec2", zone, form["InstanceType"],
                "spot" if spot else "on_demand", self._tags(form), startup))
            machine.client_token, machine.polls_left = token, self.cloud.operation_polls
            machines.append(machine)
        self.runs += 1
        if token:
            self.by_token[token] = (same, machines)
        return self._reservation(machines)

    @staticmethod
    def _tags(form):
        tags, n = {}, 1
        while f"TagSpecification.1.Tag.{n}.Key" in form:
            key = form[f"TagSpecification.1.Tag.{n}.Key"]
            tags[key] = form.get(f"TagSpecification.1.Tag.{n}.Value", "")
            n += 1
        return tags

    def _reservation(self, machines):
        return ("<reservationId>r-0</reservationId><ownerId>1</ownerId><groupSet/><instancesSet>"
                + "".join(self._item(m) for m in machines) + "</instancesSet>")

    def _item(self, machine):
        code, name = STATE[machine.state]
        tags = "".join(f"<item><key>{escape(k)}</key><value>{escape(v)}</value></item>"
                       for k, v in machine.labels.items())
        life = "<instanceLifecycle>spot</instanceLifecycle>" if machine.market == "spot" else ""
        reason = (f"<reason/><stateReason><code>{escape(machine.reason)}</code><message>"
                  f"{escape(machine.reason)}</message></stateReason>"
                  if machine.reason else "<reason/>")
        launched = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(machine.created))
        return (f"<item><instanceId>{machine.name}</instanceId><instanceState><code>{code}</code>"
                f"<name>{name}</name></instanceState>{reason}"
                f"<instanceType>{machine.machine_type}</instanceType>{life}"
                f"<clientToken>{escape(machine.client_token or '')}</clientToken>"
                f"<launchTime>{launched}</launchTime><placement><availabilityZone>"
                f"{machine.zone}</availabilityZone>"
                f"</placement><tagSet>{tags}</tagSet></item>")

    def _listed(self, form, prefix):
        values, n = [], 1
        while f"{prefix}.{n}" in form:
            values.append(form[f"{prefix}.{n}"])
            n += 1
        return values

    def _named(self, form):
        machines = []
        for name in self._listed(form, "InstanceId"):
            machine = self.cloud.machines.by_name.get(name)
            if machine is None or self.cloud.unknown_yet:
                code = "InvalidInstanceID.NotFound" if name.startswith("i-") \
                    else "InvalidInstanceID.Malformed"
                raise Ec2Error(400, code, f"The instance ID '{name}' does not exist")
            machines.append(machine)
        return machines

    def _terminate(self, form):
        for machine in self._named(form):
            self.cloud.machines.end(machine, "User initiated")
        return "<instancesSet>" + "".join(
            f"<item><instanceId>{m.name}</instanceId></item>" for m in self._named(form)) \
            + "</instancesSet>"

    def _describe_all(self, form):
        machines = self._named(form) or [m for m in self.cloud.machines.by_name.values()
                                         if m.service == "ec2" and not self.cloud.unknown_yet]
        n = 1
        while f"Filter.{n}.Name" in form:
            name, values = form[f"Filter.{n}.Name"], self._listed(form, f"Filter.{n}.Value")
            if name.startswith("tag:"):
                machines = [m for m in machines if m.labels.get(name[4:]) in values]
            elif name == "client-token":
                machines = [m for m in machines if m.client_token in values]
            else:
                raise Ec2Error(400, "InvalidParameterValue", f"The filter '{name}' is invalid")
            n += 1
        for machine in machines:
            if machine.state == "starting":
                machine.polls_left -= 1
                if machine.polls_left < 0:
                    self.cloud.machines.start(machine)
        start = int(form.get("NextToken") or 0)
        size = min(int(form.get("MaxResults", 1000)), self.cloud.page_size)
        more = (f"<nextToken>{start + size}</nextToken>" if start + size < len(machines) else "")
        return ("<reservationSet>" + "".join(
            f"<item><reservationId>r-0</reservationId><instancesSet>{self._item(m)}"
            "</instancesSet></item>" for m in machines[start:start + size])
            + f"</reservationSet>{more}")
