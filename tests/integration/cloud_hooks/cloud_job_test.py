"""Jobs with real workers on servers from a provider. Each run of this script is one case."""
import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import mayfly_run
from cloud_job import JOB, CloudJob, alive_in, free_ports, process_cloud, requests_in
from mayfly_run import SMALL_JOB, Run, expect

COMPARED = 40  # steps


def same_bits_as_undisturbed(job):
    oracle = Run(JOB + ["--workers", "1"])
    oracle.wait_for_step(COMPARED)
    oracle.command("stop")
    oracle.wait()
    wanted, found = mayfly_run.digests(oracle), mayfly_run.digests(job.run)
    for step in range(1, COMPARED + 1):
        expect(wanted[step] == found[step], f"step {step} differs\n{job.shown()}")
    oracle.remove()


def calibrates(job):
    """`mayfly plan fit` finds types, starting times, lifetimes and prices of the servers."""
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    done = subprocess.run([mayfly_run.BINARY, "plan", "fit", job.run.run_dir, "-o", folder],
                          capture_output=True, text=True, timeout=60)
    expect(done.returncode == 0, done.stderr)

    def rows(table):
        with open(os.path.join(folder, table), newline="", encoding="utf-8") as text:
            return list(csv.DictReader(text))
    starts = [row["gpu"] for row in rows("startup_untrimmed.csv") if row["class"] == "on_demand"]
    expect(starts == ["process"] * len(job.events("server_joined")), f"starts of {starts}")
    ends = sorted(row["ended_by"] for row in rows("lifetime_servers.csv"))
    expect(ends == ["revoked"] + ["stopped"] * (len(starts) - 1), f"lives ended by {ends}")
    prices = [(row["resource"], row["market"], round(3600 * float(row["usd_per_second"]), 9))
              for row in rows("prices.csv")]
    expect(prices == [("1xprocess server", "on_demand", 0.5)], f"prices {prices}")
    shutil.rmtree(folder)


def local_replaces_a_killed_worker_and_scales():
    job = CloudJob(["--cloud-provider", "local", "--workers", "2", "--cloud-max-workers", "3",
                    "--cloud-offers", "process:on_demand=0.5", "--cloud-budget", "100"])
    job.wait_for_active(2)
    victim = job.active()[0]
    os.kill(victim["pid"], signal.SIGKILL)
    job.wait_for("a replacement", lambda: len(job.events("server_joined")) == 3)
    job.wait_for_active(2)
    asked = [event for event in job.events("server_requested") if "ms" in event]
    expect(len(asked) == 1, f"one request for one loss\n{job.shown()}")
    job.run.command("scale", "3")
    job.wait_for_active(3)
    job.run.command("scale", "1")
    job.wait_for_active(1)
    job.run.wait_for_step(COMPARED)
    job.stop()
    same_bits_as_undisturbed(job)
    calibrates(job)
    last = job.events("cost")[-1]
    expect(last["billing"] == 0 and last["spent"] > 0, f"everything is released\n{job.shown()}")
    print(f"from the loss to the request: {asked[0]['ms']:.1f} ms")


SERVERS = SMALL_JOB + ["--steps", "120", "--threads", "1", "--sync", "bsp", "--ps-replicas", "1",
                       "--workers", "2"]
SLOW_STEPS = ["--inject", "delay=50ms"]


def digest_of_train(words):
    """The digest of the same job without a provider: `mayfly train`, undisturbed."""
    run = Run(SERVERS + words)
    expect(run.wait() == 0, run.output())
    digest = run.summary()["final_digest"]
    run.remove()
    return digest


def granted(job):
    return len(job.events("server_granted"))


def parameter_servers_are_servers_too():
    """Two workers and two parameter servers from the provider. A dead worker is replaced. A dead
    parameter server is not: its follower leads, and a new server would have no parameters. A
    reduced number of workers does not end a parameter server."""
    digest = digest_of_train(["--ps", "2"])
    job = CloudJob(["--cloud-provider", "local", "--cloud-max-workers", "3", "--ps", "2"],
                   job=SERVERS + SLOW_STEPS)
    job.wait_for("all roles", lambda: sorted(m["role"] or "" for m in job.active()) ==
                 ["server", "server", "worker", "worker"])
    of_role = lambda role: [m for m in job.active() if m["role"] == role]
    os.kill(of_role("worker")[0]["pid"], signal.SIGKILL)
    job.wait_for("another worker", lambda: granted(job) == 5 and len(job.active()) == 4)
    os.kill(of_role("server")[1]["pid"], signal.SIGKILL)
    job.wait_for("its follower to lead", lambda: len(of_role("server")) == 1)
    job.run.command("scale", "3")
    job.wait_for("a third worker", lambda: len(of_role("worker")) == 3)
    job.run.command("scale", "1")
    job.wait_for("one worker", lambda: len(of_role("worker")) == 1 and len(job.active()) == 2)
    expect(len(of_role("server")) == 1, f"it is never given up\n{job.shown()}")
    expect(job.run.wait() == 0, job.shown())
    expect(job.run.summary()["final_digest"] == digest, f"other bits\n{job.shown()}")
    expect(granted(job) == 6, f"the lost server is not asked for again\n{job.shown()}")
    expect(job.events("cost")[-1]["billing"] == 0, f"everything is released\n{job.shown()}")


def workers_from_a_provider_carry_servers():
    """Workers from a provider also run the parameter servers. A worker that joins later runs
    none."""
    digest = digest_of_train(["--ps", "colocated"])
    job = CloudJob(["--cloud-provider", "local", "--cloud-max-workers", "3", "--ps", "colocated"],
                   job=SERVERS + SLOW_STEPS)
    roles = lambda: sorted(m["role"] or "" for m in job.active())
    job.wait_for("both", lambda: roles() == ["worker+server", "worker+server"])
    job.run.command("scale", "3")
    job.wait_for("a third", lambda: roles() == ["worker", "worker+server", "worker+server"])
    job.run.command("scale", "1")
    job.wait_for("the third to go", lambda: roles() == ["worker+server", "worker+server"])
    expect(job.run.wait() == 0, job.shown())
    expect(job.run.summary()["final_digest"] == digest, f"other bits\n{job.shown()}")


def exec_survives_stock_outs_and_lost_answers():
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    cloud, command = process_cloud(folder)
    for name, text in (("sold-out", "a"), ("lose-answers", "1")):
        with open(os.path.join(cloud, name), "w") as file:
            file.write(text)
    job = CloudJob(["--cloud-provider", "exec", "--cloud-command", command, "--workers", "2",
                    "--cloud-offers", "x@a:spot=0.1,x@b:spot=0.2"], folder)
    job.wait_for_active(2)
    expect(len(alive_in(cloud)) == 2, f"no server twice\n{job.shown()}")
    zones = [request["zone"] for request in requests_in(cloud)]
    expect(zones.count("a") == 1 or zones.count("a") == 2, f"zone a was tried: {zones}")
    job.stop()
    expect(not alive_in(cloud), "all are released at the end")


def fewer_workers_are_those_that_are_missed_least():
    """The first of three servers is slow. If fewer workers are wanted, the coordinator releases
    that one, and not the newest one, which costs more and is of another offer."""
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    cloud, command = process_cloud(folder)
    with open(os.path.join(cloud, "first"), "w") as file:
        file.write("1")
    job = CloudJob(["--cloud-provider", "exec", "--cloud-command", command, "--workers", "1",
                    "--cloud-max-workers", "3", "--cloud-offers", "x@a:spot=0.2,y@b:spot=0.25"],
                   folder, JOB + ["--inject", "slow=4x;slow=5x,worker=1"])
    job.wait_for_active(1)
    job.wait_for("its server", lambda: job.events("server_joined"))
    slow = job.events("server_joined")[0]["server"]
    job.run.command("scale", "2")
    job.wait_for_active(2)
    with open(os.path.join(cloud, "sold-out"), "w") as file:
        file.write("a")
    job.run.command("scale", "3")
    job.wait_for("three measured speeds",
                 lambda: sum(m["microbatch_ms"] > 0 for m in job.active()) == 3)
    job.run.command("scale", "2")
    job.wait_for_active(2)
    job.wait_for("its release", lambda: slow not in [s["id"] for s in alive_in(cloud)])
    zones = sorted(server["zone"] for server in alive_in(cloud))
    expect(zones == ["a", "b"], f"servers in {zones}\n{job.shown()}")
    chosen = job.events("servers_chosen")
    expect(len(chosen) == 1 and chosen[0]["detail"].startswith(f"{slow} (x in a (spot)) with ")
           and chosen[0]["detail"].endswith("of 3 servers: more servers than needed"), job.shown())
    before = {server["id"] for server in alive_in(cloud)}
    job.run.command("give-up", "1")
    job.wait_for("another server", lambda: len(alive_in(cloud)) == 2 and
                 len(before & {server["id"] for server in alive_in(cloud)}) == 1)
    job.wait_for_active(2)
    with open(os.path.join(cloud, "room"), "w") as file:
        file.write("1")
    job.wait_for("what the provider wants back", lambda: len(alive_in(cloud)) == 1)
    job.wait_for_active(1)
    chosen = job.events("servers_chosen")
    expect(len(chosen) == 3 and chosen[1]["detail"].endswith("an operator gave up 1")
           and chosen[2]["detail"].endswith("the provider wants 1 back"), job.shown())
    job.stop()


def other_servers_are_proposed_and_taken():
    """The servers' price rises fourfold while the job runs. Within the hourly budget one server is
    replaced by a server of the other offer, which was more expensive before."""
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    cloud, command = process_cloud(folder)
    job = CloudJob(["--cloud-provider", "exec", "--cloud-command", command, "--workers", "2",
                    "--cloud-max-workers", "3", "--cloud-offers", "x@a:spot=0.4,y@b:spot=0.5",
                    "--cloud-budget-per-hour", "4", "--cloud-replan", "act",
                    "--cloud-replan-every", "1"], folder)
    job.wait_for_active(2)
    expect([server["zone"] for server in alive_in(cloud)] == ["a", "a"], job.shown())
    with open(os.path.join(cloud, "prices.new"), "w") as file:
        file.write('{"a": 1.6}')
    os.rename(os.path.join(cloud, "prices.new"), os.path.join(cloud, "prices"))
    job.wait_for("a proposal", lambda: job.events("replan"))
    job.wait_for("its end", lambda: len(job.events("replan_scaled")) == 2)
    job.wait_for("one server in each zone",
                 lambda: sorted(server["zone"] for server in alive_in(cloud)) == ["a", "b"])
    replan = job.events("replan")[0]
    expect(replan["change"] == "other" and replan["offer"] == "y in b (spot)" and replan["acts"]
           and replan["unit"] == "money" and 0 < replan["gain"]["low"] < replan["gain"]["median"],
           f"{replan}")
    expect(job.status()["proposal"].startswith("y in b (spot) in place of another server saves "),
           f"{job.status()}")
    dearest = max(event["per_hour"] for event in job.events() if "per_hour" in event)
    expect(dearest <= 4, f"{dearest} per hour\n{job.shown()}")
    job.run.wait_for_step(COMPARED)
    job.stop()
    same_bits_as_undisturbed(job)


def a_composition_is_met_and_met_again():
    """Two servers of offer x and one of y are wanted. y is sold out, so the third server is of x,
    whose limit allows it. Later a server of y replaces it, and a lost server of y is replaced by
    another one of y."""
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    cloud, command = process_cloud(folder)
    sold_out = os.path.join(cloud, "sold-out")
    with open(sold_out, "w") as file:
        file.write("b")
    job = CloudJob(["--cloud-provider", "exec", "--cloud-command", command, "--workers", "3",
                    "--cloud-max-workers", "6", "--cloud-back-to-spot", "2",
                    "--cloud-offers", "x@a:spot=0.4#3,y@b:spot=0.5",
                    "--cloud-composition", "2 x x + 1 x y"], folder)

    def zones():
        return sorted(server["zone"] for server in alive_in(cloud))
    job.wait_for_active(3)
    expect(zones() == ["a", "a", "a"], f"servers in {zones()}\n{job.shown()}")
    os.remove(sold_out)
    job.wait_for("one of y", lambda: zones() == ["a", "a", "b"])
    expect(job.events("back_to_composition"), job.shown())
    job.wait_for_active(3)
    victim = next(server["id"] for server in alive_in(cloud) if server["zone"] == "b")
    with open(os.path.join(cloud, "server-" + victim)) as file:
        os.killpg(json.load(file)["pid"], signal.SIGKILL)
    job.wait_for("another one of y", lambda: zones() == ["a", "a", "b"] and victim not in
                 [server["id"] for server in alive_in(cloud)])
    job.wait_for_active(3)
    job.run.wait_for_step(COMPARED)
    job.stop()
    same_bits_as_undisturbed(job)


def a_restarted_coordinator_adopts_what_it_finds():
    """A restarted coordinator adopts the provider's servers, and keeps the number of workers that
    was set with `mayfly scale`."""
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    cloud, command = process_cloud(folder)
    job = CloudJob(["--cloud-provider", "exec", "--cloud-command", command, "--workers", "2",
                    "--cloud-max-workers", "3", "--cloud-offers", "x@a:spot=0.1"], folder)
    job.wait_for_active(2)
    job.run.command("scale", "3")
    job.wait_for_active(3)
    before = len(requests_in(cloud))
    job.run.process.kill()
    job.run.process.wait()
    job.start()
    job.wait_for("adoption", lambda: len(job.events("server_adopted")) == 3)
    job.wait_for_active(3)
    expect(len(requests_in(cloud)) == before, f"nothing was asked for anew\n{job.shown()}")
    os.kill(job.active()[0]["pid"], signal.SIGKILL)
    job.wait_for("a replacement", lambda: len(requests_in(cloud)) == before + 1)
    job.wait_for_active(3)
    job.stop()
    expect(not alive_in(cloud), "all are released at the end")


def one_killed_while_it_ends_is_followed_by_one_that_releases_the_servers():
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    cloud, command = process_cloud(folder)
    open(os.path.join(cloud, "linger"), "w").close()
    job = CloudJob(["--cloud-provider", "exec", "--cloud-command", command, "--workers", "2",
                    "--cloud-offers", "x@a:spot=0.1"], folder)
    job.wait_for_active(2)
    before = len(requests_in(cloud))
    open(os.path.join(cloud, "hold"), "w").close()
    job.run.command("stop")
    job.wait_for("the workers' end", lambda: len(job.events("worker_done")) == 2)
    job.run.process.kill()
    job.run.process.wait()
    expect(not os.path.exists(job.run.path("summary.json")), "it died before that")
    expect(len(alive_in(cloud)) == 2, "nobody has released them")
    time.sleep(0.1)  # so that the held request notices that its caller has ended
    os.remove(os.path.join(cloud, "hold"))
    job.start()
    expect(job.run.wait() == 3, f"the outcome is what it was\n{job.shown()}")
    expect(job.run.summary()["outcome"] == "stopped", f"{job.run.summary()}")
    expect(not alive_in(cloud), f"all are released\n{job.shown()}")
    expect(len(requests_in(cloud)) == before, f"nobody was replaced\n{job.shown()}")


def a_standby_takes_over_the_servers_too():
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    cloud, command = process_cloud(folder)
    ports = free_ports(2)
    shared = ["--cloud-provider", "exec", "--cloud-command", command, "--workers", "3",
              "--cloud-offers", "x@a:spot=0.1", "--cloud-job", "together",
              "--cloud-coordinators", ",".join(f"127.0.0.1:{port}" for port in ports)]
    first = CloudJob(shared + ["--quorum", "--port", str(ports[0])], folder)
    first.wait_for_active(3)
    before = len(requests_in(cloud))
    os.makedirs(os.path.join(folder, "second", "run"))
    shutil.copy(first.run.path("token"), os.path.join(folder, "second", "run"))
    second = CloudJob(shared + ["--standby", "--port", str(ports[1])],
                      os.path.join(folder, "second"))
    second.wait_for("standing by", lambda: second.status().get("phase") == "standby")
    said = second.run.command("scale", "2")
    expect(said.returncode != 0 and "not in charge" in said.stdout + said.stderr, str(said))
    first.run.process.kill()
    first.run.process.wait()
    second.wait_for("adoption", lambda: len(second.events("server_adopted")) == 3)
    second.wait_for_active(3)
    expect(len(requests_in(cloud)) == before, f"nothing was asked for anew\n{second.shown()}")
    os.kill(second.active()[0]["pid"], signal.SIGKILL)
    second.wait_for("a replacement", lambda: len(requests_in(cloud)) == before + 1)
    second.wait_for_active(3)
    # Started again, the first coordinator learns that it does not lead the job and takes no server.
    first.start()
    first.wait_for("its turn", lambda: first.status().get("phase") in ("resuming", "waiting"))
    step = second.run.last_step()
    second.wait_for("more steps", lambda: second.run.last_step() > step + 20)
    expect(len(alive_in(cloud)) == 3, f"the job keeps its servers\n{first.shown()}")
    first.run.process.kill()
    first.run.process.wait()
    second.stop()
    expect(not alive_in(cloud), "all are released at the end")


def wrong_settings_start_nothing():
    def code(*words):
        done = subprocess.run([mayfly_run.BINARY, *words], capture_output=True, text=True,
                              check=False)
        return done.returncode, done.stdout + done.stderr
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    path = os.path.join(folder, "job.toml")
    for text, part in (("[cloud]\nprovidr = \"local\"", "did you mean"),
                       ("[[cloud.offer]]\nprise = 1.0", "did you mean"),
                       ("[cloud]\nprovider = \"local\"\nbudget = 1.0", "price of every offer"),
                       ("[cloud]\nprovider = \"exec\"", "needs cloud_command"),
                       ("[cloud]\nprovider = \"gce\"\noptions = \"project=project-1\"",
                        "cloud_bundle"),
                       ("[cloud]\nprovider = \"gce\"\noptions = \"project=project-1\"\n"
                        "bundle = \"/no/such/file\"", "/no/such/file"),
                       ("[cloud]\nprovider = \"local\"\ncomposition = \"2 x b\"\n"
                        "[[cloud.offer]]\ntype = \"a\"\nmax_workers = 3", "is not one of"),
                       ("[cloud]\nprovider = \"local\"\nreplan = \"yes\"",
                        "cloud_replan 'yes' is not known"),
                       ("quorum = true\n[cloud]\nprovider = \"local\"",
                        "cloud_coordinators")):
        with open(path, "w") as file:
            file.write(text + "\n")
        result, said = code("coordinator", "--config", path, "--cloud-dry-run")
        expect(result == 2 and part in said, f"{text!r}: exit {result}, {said}")
    result, said = code("coordinator", "--cloud-provider", "slurm", "--workers", "3",
                        "--cloud-offers", "@spot:spot=1", "--cloud-dry-run")
    expect(result == 0 and "3 x sbatch" in said and "--partition=spot" in said, said)
    result, said = code("train", "--cloud-provider", "local")
    expect(result == 2 and "coordinator" in said, said)
    expect(code("cloud", "list")[0] == 2, "no provider named")
    result, said = code("cloud", "release", "no-such-job", "--cloud-provider", "ssh",
                        "--hosts", "a", "--ssh", "false")
    expect(result == 0 and "nothing is released" in said, f"exit {result}, {said}")


def an_evaluator_is_a_server_too():
    """Two workers and an evaluator on servers of the same offer. A killed evaluator is replaced,
    and training goes on. A reduced number of workers does not end the evaluator, and it evaluates
    the last checkpoint."""
    job = CloudJob(["--cloud-provider", "local", "--workers", "2", "--evaluators", "1",
                    "--cloud-offers", "process:on_demand=0.5", "--checkpoint-every", "10",
                    "--keep-checkpoints", "1000"])
    job.wait_for("an evaluation", lambda: job.events("evaluated"))
    job.wait_for_active(2)
    evaluator = job.status()["evaluators"][0]["server"]
    workers = {m["pid"] for m in job.active()}
    expect(len(job.events("server_granted")) == 3, job.shown())
    children = subprocess.run(["pgrep", "-P", str(job.run.process.pid)], capture_output=True,
                              text=True, check=True).stdout.split()
    pid = next(int(child) for child in children if int(child) not in workers
               and f"--server\0{evaluator}\0" in open(f"/proc/{child}/cmdline").read())
    os.kill(pid, signal.SIGKILL)
    job.wait_for("another evaluator", lambda: len(job.events("evaluator_joined")) == 2)
    job.wait_for("what it measures", lambda: any(e["server"] != evaluator
                                                 for e in job.events("evaluated")))
    expect({m["pid"] for m in job.active()} == workers, f"workers left\n{job.shown()}")
    job.run.command("scale", "1")
    job.wait_for_active(1)
    expect(len(job.status()["evaluators"]) == 1, job.shown())
    job.stop()
    summary = job.run.summary()
    expect(summary["evaluations"]["step"] == summary["steps"], f"{summary['evaluations']}")
    expect(len(summary["evaluations"]["evaluators"]) == 2, f"{summary['evaluations']}")
    expect("evaluations" in job.run.output() and evaluator in job.run.output(), job.run.output())
    expect(job.events("cost")[-1]["billing"] == 0, f"everything is released\n{job.shown()}")


CASES = {"local": local_replaces_a_killed_worker_and_scales,
         "exec": exec_survives_stock_outs_and_lost_answers,
         "standby": a_standby_takes_over_the_servers_too,
         "end": one_killed_while_it_ends_is_followed_by_one_that_releases_the_servers,
         "fewer": fewer_workers_are_those_that_are_missed_least,
         "composition": a_composition_is_met_and_met_again,
         "replan": other_servers_are_proposed_and_taken,
         "restart": a_restarted_coordinator_adopts_what_it_finds,
         "parameter_servers": parameter_servers_are_servers_too,
         "carried_servers": workers_from_a_provider_carry_servers,
         "evaluator": an_evaluator_is_a_server_too,
         "settings": wrong_settings_start_nothing}

if __name__ == "__main__":
    CASES[sys.argv[1]]()
    print("passed")
