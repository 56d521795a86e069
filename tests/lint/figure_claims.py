"""The claims that the documents make about benchmarks/results, computed from the files: sentences
and rows with numbers between each <!-- figures: NAME (begin) --> and (end). Measured figures are
computed here. Settings of the measurements (sizes, batches, percentiles) are repeated literally."""

import json
import statistics


class Results:
    """The files of benchmarks/results."""

    def __init__(self, folder):
        self.folder = folder

    def rows(self, name, **fields):
        """The lines of NAME.jsonl that have all of these values."""
        lines = (self.folder / f"{name}.jsonl").read_text().splitlines()
        return [row for row in map(json.loads, lines)
                if all(row.get(field) == value for field, value in fields.items())]

    def gpu_report(self):
        """The newest report of scripts/gpu-check."""
        reports = [json.loads(path.read_text()) for path in (self.folder / "gpu").glob("*.json")]
        return max(reports, key=lambda report: report["started"])

    def row(self, name, **fields):
        """The only line of NAME.jsonl that has all of these values."""
        row, = self.rows(name, **fields)
        return row


def column(rows, field):
    return [row[field] for row in rows]


def at(values, fraction):
    """A quantile as in base/statistics: the nearest measured value."""
    return sorted(values)[int(fraction * (len(values) - 1) + 0.5)]


def spread(values, form):
    return f"{statistics.mean(values):{form}} ± {statistics.stdev(values):{form}}"


def recovery(results):
    machine = results.row("elasticity-2-cores", kind="machine", row="kill")
    run = results.row("elasticity-2-cores", kind="summary", row="kill")
    events = results.rows("elasticity-2-cores", kind="event", row="kill")
    assert (len(events), run["workers"], machine["cores"]) == (100, 8, 2)
    yield f"with {run['resident_mib'] / 1024:g} GiB of resident memory"
    yield f"global batch {run['global_batch']}"
    yield "| phase | median | 90 % | 99 % |"
    for words, field, form in (("detected", "detected_ms", ".1f"),
                               ("groups aborted, all stopped", "stopped_ms", ".1f"),
                               ("new group formed and in the same state", "synced_ms", ".1f"),
                               ("next step committed", "step_ms", ".0f"),
                               ("... beyond what had to be computed anyway", "beyond_ms", ".1f")):
        yield f"| {words} | " + " | ".join(
            f"{at(column(events, field), fraction):{form}}" for fraction in (0.5, 0.9, 0.99)) + " |"
    yield f"An undisturbed step took {run['undisturbed_step_ms']:.0f} ms"


STEPS = (("ResNet-20 (CIFAR), one core, per CPU-second", "resnet20 fp32 1t", ".0f"),
         ("ResNet-20, two cores, wall clock", "resnet20 fp32 2t", ".0f"),
         ("ResNet-32, one core, per CPU-second", "resnet32 fp32 1t", ".0f"),
         ("ResNet-32, two cores, wall clock", "resnet32 fp32 2t", ".0f"),
         ("ResNet-20, AVX2 on both sides, one core", "resnet20 fp32 avx2 1t", ".0f"),
         ("ResNet-20, bf16 (autocast), one core", "resnet20 bf16 1t", ".0f"),
         ("ResNet-32, bf16, one core", "resnet32 bf16 1t", ".0f"),
         ("ResNet-18 at 224x224, batch 16, one core", "resnet18 fp32 1t", ".1f"),
         ("ResNet-50 at 224x224, batch 16, one core", "resnet50 fp32 1t", ".1f"),
         ("ResNet-50, bf16, batch 16, one core", "resnet50 bf16 1t", ".1f"))


def step_rows(results, names, file="step-vs-pytorch"):
    packages = results.rows(file, kind="machine")[0]["packages"]
    yield f"PyTorch {packages['python3-torch'].split('+')[0]}"
    for words, name, form in STEPS:
        if names is not None and name not in names:
            continue
        row = results.row(file, kind="row", row=name)
        rates = {}
        for contestant in ("mayfly", "tuned", "shipped"):
            rounds = results.rows(file, kind="round", row=name, contestant=contestant)
            rates[contestant] = statistics.median(column(rounds, row["clock"]))
        best = max([rates["tuned"]] + [one["median"] for peer, one in row[row["clock"]].items()
                                       if peer.startswith("tuned")])
        yield (f"| {words} | {rates['mayfly']:{form}} | {best:{form}} / {rates['shipped']:{form}} "
               f"| **{rates['mayfly'] / best:.2f}** / {rates['mayfly'] / rates['shipped']:.2f} |")


def steps(results):
    def ms(name, model):
        return f"{quiet(results, name, 'step_ms', model):.1f}"

    yield from step_rows(results, None)
    yield (f"(ResNet-20: {ms('exact', 'resnet20')} and {ms('fp32', 'resnet20')} ms; ResNet-50 at "
           f"32 x 32: {ms('exact', 'resnet50')} and {ms('fp32', 'resnet50')} ms)")


def steps_zen4(results):
    file = "step-vs-pytorch-zen4"
    machine = results.row(file, kind="machine")
    yield f"an EPYC with Zen 4, per CPU-second, at commit {machine['commit']}"
    yield from step_rows(results, [row["row"] for row in results.rows(file, kind="row")], file)


def steps_compiled(results, names=None):
    """The rows against PyTorch 2: the fastest tuned configuration with and without compiling."""
    file = "step-vs-pytorch-2"
    versions = results.rows(file, kind="machine")[0]["peer"]
    yield f"PyTorch {versions['torch'].split('+')[0]}"
    for words, name, form in STEPS:
        if name not in (names or [row["row"] for row in results.rows(file, kind="row")]):
            continue
        row = results.row(file, kind="row", row=name)
        medians = row[row["clock"]]
        mayfly = medians["mayfly"]["median"]
        eager, compiled = (max(one["median"] for peer, one in medians.items()
                               if peer in (kind, f"{kind} passive"))
                           for kind in ("tuned", "tuned compiled"))
        yield (f"| {words} | {mayfly:{form}} | {eager:{form}} / {compiled:{form}} "
               f"| **{mayfly / max(eager, compiled):.2f}** |")


def steps_pytorch2(results):
    yield from steps_compiled(results)
    yield f"oneDNN {results.rows('step-vs-pytorch-2', kind='machine')[0]['peer']['onednn']}"
    yield commit_of(results, "step-vs-pytorch-2")


def gpu_rows(results):
    """The comparisons with PyTorch on a GPU, by row."""
    report = results.gpu_report()
    assert report["result"] == "passed" and "H100" in report["gpu"]
    return {row["row"]: row for row in report["checks"]["pytorch"]["values"]["rows"]}


def gpu_speed(results):
    bf16, fp16 = (gpu_rows(results)[f"resnet50:256:{dtype}"]["images_per_second"]
                  for dtype in ("bf16", "fp16"))
    yield "ResNet-50 with 256 images a step"
    yield (f"{fp16['mayfly']['median']:.0f} images/s in fp16 (PyTorch 2.11 eager "
           f"{fp16['eager']['median']:.0f}, with torch.compile in a CUDA graph "
           f"{fp16['compile-graph']['median']:.0f}) and {bf16['mayfly']['median']:.0f} in bf16 "
           f"(eager {bf16['eager']['median']:.0f})")


def gpu(results):
    report = results.gpu_report()
    driver = report["clocks_before"]["driver_version"]
    yield f"(80 GB, PyTorch 2.11 with cuDNN 9.19, driver {driver}"
    yield f"at commit {report['commit'][:8]}"
    for dtype in ("bf16", "fp16"):
        row = gpu_rows(results)[f"resnet50:256:{dtype}"]
        rates = {who: f"{found['median']:.0f}" for who, found in row["images_per_second"].items()}
        ratios = row["ratio_to"]
        compiled = ("not ready in time | -" if "compile-graph" not in rates else
                    f"{rates['compile-graph']} | **{ratios['fastest']['of_medians']:.2f}**")
        yield (f"| ResNet-50, 256 images, {dtype} | {rates['mayfly']} | {rates['eager']} | "
               f"**{ratios['eager']['of_medians']:.2f}** | {compiled} |")
    checks = {name: check.get("values") for name, check in report["checks"].items()}
    sums = checks["exact_sums"]
    assert abs(sums["cost"]) < 0.01
    medians = [statistics.median(sums["images_per_second"][name]) for name in ("exact", "fp32")]
    yield "5 % faster in fp16"
    yield f"ResNet-50 with 64 images in bf16 trains {medians[0]:.0f} images/s with exact sums"
    yield f"and {medians[1]:.0f} with sums in fp32"
    yield f"at most {100 * sums['target_at_most']:.0f} % are allowed"
    yield f"took {checks['recovery']['kill_to_next_step_ms']:.0f} ms"
    (recovery,) = checks["recovery"]["recoveries"]
    yield f"{recovery['stopped_ms']:.0f} ms of it"

    def apart(row, contestant):
        rate = results.row("gpu-steps", kind="apart", row=row,
                           contestant=contestant)["images_per_second"]
        return f"{rate:.0f}"

    yield "ResNet-20 with 128 images in bf16 {}, eager {}, graph {}, compile-graph {}".format(
        *(apart("resnet20:128:bf16", who) for who in ("mayfly", "eager", "graph",
                                                      "compile-graph")))
    yield "ResNet-50 in bf16 graph {}, in fp16 graph {}".format(
        apart("resnet50:256:bf16", "graph"), apart("resnet50:256:fp16", "graph"))
    parts = results.rows("gpu-steps", kind="kernels")
    yield ("A step of ResNet-50 with 256 images in bf16 consists of "
           f"{sum(column(parts, 'ms')):.1f} ms of kernels")
    for part in parts:
        yield f"| {part['part']} | {part['kernels']} | {part['ms']:.2f} |"


def store(results):
    machine = results.row("store", kind="machine")
    yield (f"{machine['images']:,} JPEGs ({machine['bytes'] / 1e6:.0f} MB) from a disk that gives "
           f"{machine['rate_mb_per_second']:g} MB/s")
    for row in results.rows("store", kind="summary"):
        assert row["equal_bits"] is True
        yield (f"| {row['share']:g} | {row['page_cache_read']:.2f} | {row['store_read']:.2f} | "
               f"{row['page_cache_epoch_seconds']:.1f} | {row['store_epoch_seconds']:.1f} | "
               f"**{row['faster']:.2f}** |")


STORE_HOSTS = {"kept": "nothing", "killed-1": "one is killed", "killed-2": "one is killed",
               "left": "one leaves with a notice", "joined": "one joins"}


def store_hosts(results):
    machine = results.row("store-hosts", kind="machine")
    rows = results.rows("store-hosts", kind="row")
    assert len({row["digest"] for row in rows}) == 1
    yield (f"{machine['images']:,} JPEGs ({machine['bytes'] / 1e6:.0f} MB) on {machine['hosts']} "
           f"hosts with stores (commit {machine['commit']}")
    for row in rows:
        after = row["change_after"]
        yield (f"| {row['room']:.2f} | {row['copied']:,} | {STORE_HOSTS[row['row']]} | "
               f"{sum(row['read'][1:after]):.3f} | {sum(row['read'][after:]):.3f} |")


def store_epochs(results):
    machine = results.row("store-epochs", kind="machine")
    yield f"needs {machine['slow']:g} times as long"
    yield f"{machine['images']:,} JPEGs ({machine['bytes'] / 1e6:.0f} MB)"
    yield f"memory for {machine['room']:g} of the images"
    rows = {row["way"]: row for row in results.rows("store-epochs", kind="summary")}
    assert all(row["equal_bits"] for row in rows.values())
    for way, row in rows.items():
        yield (f"| {way} | {row['read']:.3f} | {row['epoch_seconds']:.2f} | "
               f"{row['times_in_memory']:.2f} |")
    stores = rows["stores"]
    yield (f"an epoch is **{stores['faster_than_page_cache']:.2f}** times as fast as with the page "
           f"cache, and takes {100 * (stores['times_in_memory'] - 1):.1f} % longer")


STORE_KILLS = {"store": "a store, one host", "hosts": "stores of four hosts",
               "workers": "stores of three hosts, unequal",
               "prepared": "prepared images, three jobs"}


def store_kills(results):
    machine = results.row("store-kills", kind="machine")
    rows = results.rows("store-kills", kind="row")
    kills, jobs, steps = (sum(column(rows, name)) for name in ("kills", "jobs", "steps"))
    assert kills >= 1000 and sum(column(rows, "wrong_steps")) == 0
    yield (f"{kills:,} kills in {jobs} jobs (commit {machine['commit']}")
    jobs_of_rows = results.rows("store-kills", kind="job")
    # Simultaneous jobs of a row have the same duration, which counts once.
    seconds = {(row["row"], row["seconds"]): row["seconds"] for row in jobs_of_rows}
    yield f"one in {sum(seconds.values()) / kills:.2f} s"
    yield f"After none of their {steps:,} steps"
    yield f"of the {machine['images']} images"
    for row in rows:
        yield (f"| {STORE_KILLS[row['row']]} | {row['jobs']} | {row['kills']} | "
               f"{row['membership_changes']} | {row['steps']:,} | {row['read']:.2f} |")


def searches(results):
    for row in results.rows("searches", kind="summary"):
        yield (f"| {row['way']} | {row['jobs']} | {row['prep_seconds_ratio']:.2f} | "
               f"{row['bytes_read_ratio']:.2f} |")
        if row["way"] == "shared":
            yield f"{row['steps']} steps"
    rows = {row["way"]: row for row in results.rows("searches-quota", kind="summary")}
    rest = rows["time of those that go on"]
    yield (f"with {rest['quota']:g} of a processor for each job, {rest['rounds']} rounds")
    yield f"four that share prepare in {rows['shared']['prep_seconds_ratio']:.2f} of one job's time"
    yield (f"{rest['rest_seconds_ratio']:.2f} of the time ({rest['rest_seconds_ratio_least']:.2f} "
           f"to {rest['rest_seconds_ratio_most']:.2f})")


def interfaces(results):
    machine = results.row("engine-interfaces", kind="machine")
    before, now = results.rows("engine-interfaces", kind="settings")
    yield f"took turns for {machine['rounds']} rounds"
    yield f"commits {machine['builds']['before']} and {machine['commit']}"
    yield (f"{before['step_ms']:.1f} ms ({before['step_ms_min']:.1f} to "
           f"{before['step_ms_max']:.1f}) before and {now['step_ms']:.1f} ms "
           f"({now['step_ms_min']:.1f} to {now['step_ms_max']:.1f}) after, and "
           f"{before['cpu_ms']:.1f} and {now['cpu_ms']:.1f} ms of processor")


def program(results):
    rates = results.row("program", kind="rates")
    yield (f"{rates['workers']} workers of one thread each on two cores, {rates['batch']} images a "
           f"step in microbatches of {rates['microbatch']}")
    for name, way in (("Mayfly, exact sums", "mayfly"), ("Mayfly, fp32 sums", "mayfly_fp32"),
                      ("DistributedDataParallel", "ddp")):
        low, high = rates[way + "_spread"]
        yield f"| {name} | {rates[way]:.0f} | {low:.0f} to {high:.0f} |"
    yield (f"{rates['mayfly_to_ddp']:.2f} times as fast as DDP, and exact sums "
           f"{rates['mayfly_to_mayfly_fp32']:.2f} times as fast as fp32 sums")
    lost = results.row("program", kind="recoveries")
    stopped, synced, step = lost["stopped_ms"], lost["synced_ms"], lost["step_ms"]
    yield (f"{lost['kills']} kills of workers that hold {lost['resident_mib']} MiB and have two "
           "processes that read")
    yield (f"the others had stopped after {stopped['median']:g} ms (99 %: {stopped['p99']:g}), "
           f"were in the same state after {synced['median']:g} ({synced['p99']:g}), and had made "
           f"the next step, with the lost worker's microbatches, after {step['median']:.0f} "
           f"({step['p99']:.0f})")


def program_accuracy(results):
    machine = results.row("program-accuracy", kind="machine")
    yield f"{machine['epochs']:g} epoch of CIFAR-10"
    yield f"{machine['text_steps']} steps of"
    images, text = ({row["way"]: row for row in results.rows("program-accuracy", kind="summary")
                     if row["network"] == network} for network in ("images", "text"))
    for name, way in (("PyTorch alone", "pytorch"), ("Mayfly, exact sums", "exact"),
                      ("Mayfly, fp32 sums", "fp32")):
        right, loss = images[way], text[way]
        assert right["seeds"] == loss["seeds"] == 3
        yield (f"| {name} | {100 * right['accuracy']:.1f} ({100 * right['accuracy_least']:.1f} to "
               f"{100 * right['accuracy_most']:.1f}) | {loss['loss']:.3f} "
               f"({loss['loss_least']:.3f} to {loss['loss_most']:.3f}) |")


def accuracy(network):
    def claims(results):
        for row in results.rows(f"accuracy-cifar10-{network}"):
            if "seed" in row:
                yield (f"| {row['reduction']} | {row.get('wire', '-')} | {row['kernels']} | "
                       f"{row['seed']} | {row['what']} | {100 * row['test_top1']:.2f} |")
    return claims


def settings_of(results, job, **fields):
    """The rounds of benchmarks/compare_settings, by setting, for the jobs that contain `job`."""
    found, inside = {}, False
    for row in results.rows("exchange-settings"):
        if row["kind"] == "machine":
            inside = job in row["job"] and all(row[name] == value for name, value in fields.items())
        elif inside and row["kind"] == "round":
            found.setdefault(row["name"], []).append(row)
    return found


def median_of(rounds, field):
    return statistics.median(column(rounds, field))


def all_reduce_ms(results, ranks, size, contestant):
    rounds = results.rows("allreduce-2-cores", kind="round", ranks=ranks, bytes=size << 10,
                          contestant=contestant)
    assert len(rounds) == 5
    return median_of(rounds, "median_ms")


def quiet(results, name, field, model):
    return median_of(settings_of(results, model, commit="ab0cc01")[name], field)


def speed(results):
    """Claims of docs/benchmarks.md that the README repeats."""
    yield from steps_compiled(results, ("resnet20 fp32 1t", "resnet20 fp32 2t",
                                        "resnet18 fp32 1t", "resnet50 fp32 1t"))

    def large(contestant):
        return f"{all_reduce_ms(results, 4, 25 << 10, contestant):.3g}"

    def small(contestant):
        return f"{1000 * all_reduce_ms(results, 2, 4, contestant):.2g}"

    yield ("An all-reduce of 25 MiB between four workers of one host takes "
           f"{large('mayfly-unix')} ms through shared memory (Open MPI {large('mpi-shm')}) and "
           f"{large('mayfly-tcp')} over "
           f"TCP (plain ring {large('poll')}, Gloo {large('gloo')}, Open MPI {large('mpi-tcp')}); "
           f"one of 4 KiB between two workers {small('mayfly-unix')} us (Open MPI "
           f"{small('mpi-copy')}) and {small('mayfly-tcp')} us (plain ring {small('poll')}, Open "
           f"MPI {small('mpi-tcp')})")
    yield from gpu_speed(results)
    yield from ten_epochs(results)


VARIANTS = (("`bsp`", "bsp"), ("`asp`", "asp"), ("`bsp:50%,asp`", "bsp:50%,asp"),
            ("{} with `--straggler greedy`", "bsp:50%,asp+greedy"),
            ("{} with `--straggler elastic`", "bsp:50%,asp+elastic"))


def compared(results, variant):
    rows = results.rows("compare-cifar10", variant=variant)
    assert sorted(column(rows, "seed")) == [1, 2, 3]
    return (column(rows, "train_seconds"), column(rows, "images_per_second"),
            [100 * top1 for top1 in column(rows, "test_top1")])


def commit_of(results, name, **fields):
    commit, = {row["commit"] for row in results.rows(name, kind="machine", **fields)}
    return f"commit {commit}"


CONTESTANTS = ("mayfly-tcp", "poll", "mpi-tcp", "gloo", "mayfly-gloo", "mayfly-mpi-tcp",
               "mayfly-unix", "mpi-shm", "mpi-copy", "mayfly-mpi")
# (description, contestant, peers with which it is compared)
RATIOS = (("TCP", "mayfly-tcp", ("poll", "mpi-tcp", "gloo")),
          ("shared memory", "mayfly-unix", ("mpi-shm", "mpi-copy")),
          ("our Gloo", "mayfly-gloo", ("gloo",)), ("our MPI", "mayfly-mpi", ("mpi-shm",)),
          ("our MPI over TCP", "mayfly-mpi-tcp", ("mpi-tcp",)))


def all_reduce(results):
    machine = results.row("allreduce-2-cores", kind="machine")
    yield f"load {machine['load_average_before']:.1f}"
    yield commit_of(results, "allreduce-2-cores")
    all_ranks, sizes = (2, 4), (4, 64, 2 << 10, 25 << 10, 100 << 10)
    ms = {(ranks, size, contestant): all_reduce_ms(results, ranks, size, contestant)
          for ranks in all_ranks for size in sizes for contestant in CONTESTANTS}
    for ranks in all_ranks:
        for size in sizes:
            cells = []
            for contestant in CONTESTANTS:
                value = ms[ranks, size, contestant]
                cell = f"{value:.3g}" if value >= 0.01 else f"{value:.4f}"
                cells.append(f"**{cell}**" if contestant in ("mayfly-tcp", "mayfly-unix") else cell)
            name = f"{size >> 10}M" if size >= 1024 else f"{size}K"
            yield f"| {ranks} | {name} | {' | '.join(cells)} |"
    yield "| ours | ranks | 4K | 64K | 2M | 25M | 100M |"
    for name, ours, peers in RATIOS:
        for ranks in all_ranks:
            ratios = [min(ms[ranks, size, peer] for peer in peers) / ms[ranks, size, ours]
                      for size in sizes]
            yield f"| {name} | {ranks} | {' | '.join(f'{ratio:.2f}' for ratio in ratios)} |"
    for size in (4, 64, 2 << 10, 25 << 10):
        rounds = {one: results.rows("allreduce-8-ranks", kind="round", bytes=size << 10,
                                    contestant=one)
                  for one in ("mayfly-tcp", "poll", "gloo", "mayfly-unix")}
        cells = [f"{median_of(found, 'median_ms'):.3g}" for found in rounds.values()]
        name = f"{size >> 10}M" if size >= 1024 else f"{size}K"
        yield f"| 8 | {name} | {' | '.join(cells)} |"


def wire(results, name="wire"):
    machine = results.row(name, kind="machine")
    yield f"{machine['megabits']} Mbit/s in each direction"
    yield commit_of(results, name)
    for row in results.rows(name, kind="row"):
        rounds = results.rows(name, kind="round", workers=row["workers"], format=row["format"])
        limit, step = (median_of(rounds, key) for key in ("limit_s", "step_s"))
        yield (f"| {row['format']} | {row['bytes'] / 1e6:.1f} | {limit:.2f} | {step:.2f} | "
               f"{limit / step:.2f} |")


def wire_delay(results):
    machine = results.row("wire-delay", kind="machine")
    yield f"a packet and its answer take {machine['round_trip_ms']:g} ms"
    yield from wire(results, "wire-delay")
    yield from wire(results, "wire-delay-4")
    yield "Four such hosts"
    rounds = column(results.rows("wire-delay-4", kind="round", format="32 bits"), "step_s")
    yield "The two rounds of 32 bits took {:.2f} and {:.2f} s".format(*rounds)


def known_ms(results, backend, change):
    """Median and 99th percentile of the time until the first right sum. The trials before a row
    belong to it."""
    trials = []
    for row in results.rows("reform-8-ranks"):
        if row["kind"] == "machine":
            trials = []
        elif row["kind"] == "trial":
            trials.append(row)
        elif (row["backend"], row["change"]) == (backend, change):
            values = [one["known_ms"] for one in trials if one["change"] == change]
            assert (len(values), row["ranks"]) == (40, 8)
            return [f"{at(values, fraction):.2g}" if at(values, fraction) < 100 else
                    f"{at(values, fraction):.0f}" for fraction in (0.5, 0.99)]
    raise KeyError(backend)


def reform(results):
    yield "40 losses and 40 planned changes each"
    yield "| backend | loss, p50 / p99 | planned, p50 / p99 |"
    for words, backend in (("tcp", "tcp"), ("unix (shared memory)", "unix"), ("gloo", "gloo")):
        yield "| {} | {} / {} | {} / {} |".format(words, *known_ms(results, backend, "loss"),
                                                  *known_ms(results, backend, "planned"))


def exchange(results):
    machine = results.row("ps-exchange", kind="machine")
    yield f"load {machine['load_average_before']:.1f} at the beginning"
    yield commit_of(results, "ps-exchange")
    for size in (2, 100):
        found = {}
        for contestant in ("plain", "mayfly", "mayfly-sockets"):
            rounds = results.rows("ps-exchange", kind="exchange", bytes=size << 20,
                                  contestant=contestant)
            assert len(rounds) == 5
            found[contestant] = (median_of(rounds, "cpu_seconds_per_gb"),
                                 median_of(rounds, "gb_per_second"))
        (plain, plain_gb), (ours, ours_gb), (sockets, sockets_gb) = found.values()
        yield (f"| {size} MiB | {plain:.3f} | {ours:.3f} | **{ours / plain:.2f}** | "
               f"{sockets:.3f} | {sockets / plain:.2f} | {plain_gb:.1f} | "
               f"{ours_gb:.1f} | {sockets_gb:.1f} |")
        change = results.row("ps-exchange", kind="switch", bytes=size << 20)
        form = ".1f" if size == 2 else ".0f"
        yield (f"| {size} MiB | {change['bsp_to_asp_ms']:{form}} ms | "
               f"{change['asp_to_bsp_ms']:{form}} ms | {change['bsp_round_ms']:{form}} ms |")


def compare(results):
    yield "three epochs of 128 samples a step"
    yield "seeds 1 to 3, the variants of one seed in turn, " + commit_of(results, "compare-cifar10")
    usual, _, _ = compared(results, "bsp")
    for words, variant in VARIANTS:
        seconds, rates, top1 = compared(results, variant)
        share = f"{statistics.mean(seconds) / statistics.mean(usual):.2f}"
        yield (f"| {words.format('`bsp:50%,asp`')} | {spread(seconds, '.1f')} | "
               f"{'1' if variant == 'bsp' else share} | {spread(rates, '.0f')} | "
               f"{spread(top1, '.2f')} |")
    yield "The runs of seed 3 were slower for all variants"
    for _, variant in VARIANTS:
        seconds, _, _ = compared(results, variant)
        assert seconds[2] == max(seconds)
    rates = {variant: column(results.rows("compare-rates", variant=variant), "images_per_second")
             for variant in ("allreduce", "bsp", "asp")}
    yield ("150 steps, the same workers, seeds 1 to 3 in turn, " +
           commit_of(results, "compare-rates"))
    updates = statistics.mean(rates["asp"]) / 32  # four slices of 32 samples
    yield (f"all-reduce {spread(rates['allreduce'], '.0f')} images/s, `bsp` "
           f"{spread(rates['bsp'], '.0f')}, `asp` {spread(rates['asp'], '.0f')} "
           f"({updates:.0f} updates a second)")


def compared_runs(results):
    """The runs of ten epochs by (part, variant), in the order of their seeds."""
    runs = {}
    for row in results.rows("comparison", kind="run"):
        assert row["outcome"] == "done"
        runs.setdefault((row["part"], row["variant"]), []).append(row)
    for rows in runs.values():
        assert [row["seed"] for row in rows] == list(range(1, len(rows) + 1))
    return runs


def mean_top1(rows, like):
    """The mean accuracy in percent, over those seeds that the runs `like` have."""
    seeds = {row["seed"] for row in like}
    return statistics.mean(100 * row["test_top1"] for row in rows if row["seed"] in seeds)


def mean_seconds(rows):
    return statistics.mean(row["train_seconds"] for row in rows)


def comparison_row(rows, undisturbed):
    """A row of a table. Times and costs are means over the seeds; accuracies are listed for each
    seed."""
    seconds = mean_seconds(rows)
    hours = statistics.mean(row["worker_seconds"] for row in rows) / 3600
    accuracies = ", ".join(f"{100 * row['test_top1']:.2f}" for row in rows)
    line = (f"| `{rows[0]['variant']}` | {seconds:.0f} | {seconds / undisturbed:.2f} | "
            f"{accuracies} | {hours:.3f} | {hours * 0.03:.4f} / {hours * 0.10:.4f} |")
    if rows[0]["condition"] == "kill":
        again = statistics.median(value for row in rows for value in row["recoveries_ms"])
        line += f" {again:,.0f} | {statistics.mean(row['redone_samples'] for row in rows):,.0f} |"
    return line


def ten_epochs(results):
    runs = compared_runs(results)
    seconds = {key: mean_seconds(rows) for key, rows in runs.items()}
    killed, (again,) = runs["kill", "allreduce"], runs["torchrun-kill", "torchrun"]
    for row, undisturbed in zip(killed, runs["clean", "allreduce"]):
        assert row["test_top1"] == undisturbed["test_top1"]
    assert len(runs["clean", "allreduce"]) == 3
    newest = seconds["torchrun-2.14", "torchrun-2.14"]
    yield (f"on two cores of an EPYC take {seconds['clean', 'allreduce']:.0f} s (PyTorch "
           f"2.14's DistributedDataParallel {newest:.0f} s), and "
           f"{seconds['kill', 'allreduce']:.0f} s with the same weights")
    recoveries = statistics.median(ms for row in killed for ms in row["recoveries_ms"])
    yield (f"{recoveries / 1000:.2f} s after the news of a kill "
           f"(torchrun: {statistics.median(again['recoveries_ms']) / 1000:.1f} s)")


def comparison(results):
    runs = compared_runs(results)
    undisturbed = mean_seconds(runs["clean", "allreduce"])
    short = runs.pop(("torchrun-kill", "torchrun"))
    rates = [runs.pop((f"rates-{rule}", "asp")) for rule in ("adaptive", "naive")]
    steps, = {row["steps"] for rows in runs.values() for row in rows}
    yield f"ten epochs ({steps} steps of 128 samples, microbatches of 16)"
    yield commit_of(results, "comparison")
    for rows in runs.values():
        yield comparison_row(rows, undisturbed)
    for variant in ("allreduce", "bsp"):  # the same bits with slow or lost workers
        for undisturbed_run in runs["clean", variant]:
            top1 = {row["test_top1"] for (_, named), rows in runs.items() if named == variant
                    for row in rows if row["seed"] == undisturbed_run["seed"]}
            assert len(top1) == 1, variant
    seconds = {key: mean_seconds(rows) for key, rows in runs.items()}
    lost = {key: mean_top1(runs["clean", "bsp"], rows) - mean_top1(rows, rows)
            for key, rows in runs.items()}
    half, quarter, eighth, sixteenth = (f"bsp:{share}%,asp"
                                        for share in ("50", "25", "12.5", "6.25"))
    greedy, elastic = quarter + "+greedy", quarter + "+elastic"
    yield (f"all-reduce takes {seconds['straggler', 'allreduce']:.0f} s, `asp` "
           f"{seconds['straggler', 'asp']:.0f} s and `bsp` {seconds['straggler', 'bsp']:.0f} s")
    both = {variant: [f"{row['train_seconds']:.0f}" for row in runs["straggler", variant]]
            for variant in ("asp", "allreduce")}
    yield ("The three runs of `asp` took {}, {} and {} s, those of all-reduce {}, {} and {} s"
           .format(*both["asp"], *both["allreduce"]))
    assert all(rows[2]["train_seconds"] == min(row["train_seconds"] for row in rows)
               for (part, _), rows in runs.items() if part == "straggler" and len(rows) == 3)
    yield "with the straggler seed 3 was faster for all variants"
    yield (f"`asp` loses {lost['clean', 'asp']:.1f} points and `ssp:2` "
           f"{lost['clean', 'ssp:2']:.1f}")
    yield ("6.25, 12.5, 25 and 50 % of the job in `bsp` leave a loss of " +
           "{:.1f}, {:.1f}, {:.1f} and {:.1f} points".format(
               lost["switch", sixteenth], lost["switch", eighth], lost["clean", quarter],
               lost["switch", half]))
    yield (f"`greedy` takes {seconds['straggler', greedy]:.0f} s and loses "
           f"{lost['straggler', greedy]:.1f} points; `elastic` takes "
           f"{seconds['straggler', elastic]:.0f} s")
    assert lost["straggler", elastic] < 0
    assert seconds["straggler", quarter] < seconds["straggler", "allreduce"]
    assert seconds["straggler", "backup:3-of-4"] < seconds["clean", "backup:3-of-4"]
    assert {len(rows) for rows in runs.values()} == {1, 3}
    yield ("Where there are several accuracies, these are the seeds 1, 2 and 3 in this order, and "
           "the other figures are means; else it is seed 1")
    yield "PyTorch 1.13 over Gloo, channels last, 32 images at once in each of four workers"
    yield f"another one joins {steps // 30} steps later"
    assert {len(row["recoveries_ms"]) for row in runs["kill", "allreduce"]} == {9}
    yield (f"Nine deaths cost all-reduce "
           f"{100 * (seconds['kill', 'allreduce'] / undisturbed - 1):.0f} % of its time")
    for (row,) in rates:
        yield f"| {row['train_seconds']:.0f} | {100 * row['test_top1']:.2f} |"
    gain = 100 * (rates[0][0]["test_top1"] - rates[1][0]["test_top1"])
    yield f"A rate that follows the number of workers gains {gain:.1f} points"
    yield "an update has 32 samples"
    yield "0.1, divided by the root"
    yield "0.05, which is that of four workers"
    yield "half of that rate (`linear`: 0.025)"
    later = rates[0] + rates[1] + [row for (part, _), rows in runs.items() for row in rows
                                   if row["seed"] > (2 if part == "clean" else 1)
                                   or (part in ("straggler", "kill") and len(rows) == 1)]
    later += runs["torchrun-2.14", "torchrun-2.14"]
    assert {row["date"] for row in later} == {"2026-11-29", "2026-11-30"}
    yield ("Seed 3, seed 2 with a straggler or deaths, the rows with a single seed there, the "
           "workers that join, and `torchrun-2.14` were run on the next two days")
    again, = short
    yield "from the last checkpoint, of which there was one every 100 steps"
    assert len(again["recoveries_ms"]) == 3
    yield (f"In a job of {again['steps']} steps with three deaths it takes "
           f"{statistics.median(again['recoveries_ms']) / 1000:.1f} s from a death to the end of "
           f"the next step, and computes {again['redone_samples'] / 3:,.0f} samples again for each")
    (newest,) = runs["torchrun-2.14", "torchrun-2.14"]
    assert newest["torch"].startswith("2.14")
    yield "`torchrun-2.14` is the same with PyTorch 2.14"
    yield (f"torchrun takes {seconds['torchrun', 'torchrun'] / undisturbed:.1f} times as long as "
           f"all-reduce, with PyTorch 2.14 {newest['train_seconds'] / undisturbed:.1f} times")


def simulated(results):
    yield commit_of(results, "comparison-simulated")
    yield "with 8 parameter servers, 64,000 updates of 128 samples"
    yield "a published study (CM-DARE) of up to 8 workers"
    yield "with starts and losses, min (90 %)"
    for row in results.rows("comparison-simulated", kind="simulated"):
        minutes = {name: row["time_s"][name] / 60 for name in ("median", "low", "high")}
        yield (f"| {row['workers']:,} | `{row['policy']}` | {row['undisturbed_s'] / 60:.1f} | "
               "{median:.1f} ({low:.1f} to {high:.1f}) | ".format(**minutes) +
               f"{row['cost']['median']:.2f} | {row['losses']:.2f} |")


def jpeg(results):
    yield "600 images of 500 x 375 pixels (4:2:0, quality 90, 63 kB on average)"
    rates = {side: column(results.rows("data-jpeg", image_size=side), "images_per_cpu_second")
             for side in (96, 224)}
    assert all(len(values) == 5 for values in rates.values())
    small, large = ((statistics.median(values), min(values), max(values))
                    for values in rates.values())
    yield ("{:,.0f} images per CPU-second at 96 pixels ({:.0f} to {:,.0f}), {:.0f} at 224 pixels "
           "({:.0f} to {:.0f})".format(*small, *large))


def computed_twice(results, job, wire, bits):
    """(number of steps, number of steps that were computed twice)"""
    row, = [row for row in results.rows("exchange-settings", kind="overflow", wire=wire,
                                        headroom_bits=bits) if job in row["job"]
            and "decay_interval" not in row]
    return row["steps"], row["computed_twice"]


def settings(results):
    yield "128 images a step, 60 steps"
    rounds = settings_of(results, "resnet20", commit="ac124b7")
    assert len(rounds["fp32"]) == 8
    plain = median_of(rounds["fp32"], "cpu_ms")
    for name, words in (("fp32", "fp32 | fp32"), ("exact", "exact | int32"),
                        ("int16", "exact | int16"), ("bf16", "fp32 | bf16")):
        cpu = median_of(rounds[name], "cpu_ms")
        ratio = "1" if name == "fp32" else f"{cpu / plain:.3f}"
        yield f"| {words} | {cpu:.1f} | {ratio} |"

    def both(field, model):
        return [f"{quiet(results, name, field, model):.1f}" for name in ("fp32", "exact")]

    yield "ResNet-20 fp32 {} ms, exact {} (CPU time {} and {})".format(
        *both("step_ms", "resnet20"), *both("cpu_ms", "resnet20"))
    yield ("ResNet-50 at 32 x 32, one worker with two threads, fp32 {}, exact {} (CPU time {} and "
           "{})".format(*both("step_ms", "resnet50"), *both("cpu_ms", "resnet50")))
    for words, job, wire, rooms in (
            ("ResNet-20, CIFAR-10, lr 0.1, int32", "cifar10", "int32", (2,)),
            ("the same, int16", "resnet20 --data cifar10", "int16", (4,)),
            ("ResNet-20, procedural, lr 0.1, int32", "resnet20 --data procedural", "int32",
             (2, 3, 4)),
            ("ResNet-50 at 32 x 32 on procedural, microbatches of 8, int32", "resnet50", "int32",
             (2, 3, 4))):
        found = [computed_twice(results, job, wire, bits) for bits in rooms]
        yield "| {} | {} bits | {} | {} |".format(
            words, ", ".join(map(str, rooms)), found[0][0],
            ", ".join(str(twice) for _, twice in found))
    yield "a network with 25,000 blocks"
    rows = [row for row in results.rows("exchange-settings", kind="overflow")
            if "decay_interval" in row]
    yield ("ResNet-50 at 32 x 32 on procedural, batches of 32 in microbatches of 8, "
           f"{rows[0]['steps']} steps, commit {rows[0]['commit']}")
    for row in rows:
        yield (f"| {row['job'].split()[-1]} | {row['loss_min']:.1f} to {row['loss_max']:.1f} | "
               f"{row['computed_twice']} |")


EVENTS = (("SIGKILL of one of 8 workers with 1 GiB resident each: next step beyond what had to be "
           "computed", "kill", "beyond_ms", ".1f"),
          ("the same, one of 4 workers with 4 GiB resident each", "kill-4gib", "beyond_ms", ".1f"),
          ("SIGSTOP of one of 8 workers with 1 GiB resident each", "stop", "beyond_ms", ".0f"),
          ("packets of one of 8 workers with 1 GiB resident each are lost (network namespace): "
           "noticed", "vanish", "detected_ms", ".0f"),
          ("... next step beyond what had to be computed", "vanish", "beyond_ms", ".0f"),
          ("one of 4 workers hangs in its own work: the line that names it, from the commit before",
           "hang", "reported_ms", ".0f"),
          ("... its eviction, if the job has trained for less than two minutes", "hang",
           "detected_ms", ".0f"),
          ("one of 2 workers hangs after three minutes of regular steps: named", "hang-later",
           "reported_ms", ".0f"),
          ("... evicted", "hang-later", "detected_ms", ".0f"),
          ("SIGTERM to one of 8 workers: delay of the next step, nothing redone", "drain",
           "next_step_delay_ms", ".1f"),
          ("a fifth worker joins four, on the same cores (a step takes {} ms): what that costs "
           "these", "join", "incumbents_cost_ms", ".1f"),
          ("the same, the fifth with a core of its own and the four on the other one (a step "
           "takes {} ms)", "join-own-core", "incumbents_cost_ms", ".1f"),
          ("a fourth worker joins three with 200 MB of state (ResNet-50 at 32 x 32), on the same "
           "cores (a step takes {} ms)", "join-200mb", "incumbents_cost_ms", ".0f"),
          ("the same, the fourth with a core of its own and the three on the other one (a step "
           "takes {} ms)", "join-200mb-own-core", "incumbents_cost_ms", ".0f"),
          ("a second worker joins one with 200 MB of state, each with a core of its own (a step "
           "takes {} ms, then {} ms)", "join-200mb-one", "incumbents_cost_ms", ".0f"))


def elasticity(results):
    name = "elasticity-2-cores"

    def run(row):
        return results.row(name, kind="summary", row=row)

    def of(row, field):
        return column(results.rows(name, kind="event", row=row), field)

    yield "those before 3f10404 are from before members computed while a group forms"
    yield "| | events | median | 99 % | commit |"
    for words, row, field, form in EVENTS:
        values, seen = of(row, field), run(row)
        took = [f"{seen[key]:.0f}" for key in ("undisturbed_step_ms",
                                               "undisturbed_step_with_joiner_ms") if key in seen]
        yield (f"| {words.format(*took)} | {len(values)} | {at(values, 0.5):{form}} ms | "
               f"{at(values, 0.99):{form}} ms | {commit_of(results, name, row=row)[7:]} |")
    yield from churn(results, run)
    late = [now for now in of("kill", "steps_meanwhile") if now > 0]
    assert len(late) == 4
    yield "Four of the 100 kills of eight"
    yield f"were late by {run('drain')['undisturbed_late_p99_ms']:.1f} ms at the same fraction"
    shared, alone = (at(of(row, "incumbents_cost_percent"), 0.5)
                     for row in ("join", "join-own-core"))
    before, steady = (at(of("join", field), 0.5) for field in ("cost_before_ms", "steady_cost_ms"))
    yield (f"A join costs {alone:.0f} % of a step where the joiner has a core of its own. On "
           f"shared cores it is {shared:.0f} %, and half of that ({before:.1f} ms,")
    assert 0.4 < before / at(of("join", "incumbents_cost_ms"), 0.5) < 0.6
    yield f"As many steps without a join cost {steady:.1f} ms"
    yield "The join of 200 MB misses its 100 ms"
    costs = sorted(of("join-200mb", "incumbents_cost_ms"))
    yield f"took {max(of('join-200mb', 'steady_cost_ms')):.0f} ms longer just after it"
    yield f"the next largest is {costs[-2]:.0f} ms"
    starts = [at(of(row, "start_cost_ms"), 0.5) for row in ("join-200mb", "join-200mb-own-core")]
    yield f"the joiner's start takes another {starts[0]:.0f} ms from those who train"
    yield f"with a core of its own {starts[1]:.0f} ms"
    calm = run("oversubscribed")
    assert (calm["workers"], calm["oversubscribe"]) == (8, 4)
    assert calm["false_evictions"] == calm["stall_reports"] == 0
    yield (f"{calm['minutes']} minutes, {calm['steps']:,} steps "
           f"({commit_of(results, name, row='oversubscribed')})")
    yield f"no worker is silent for longer than {calm['longest_silence_ms']:.0f} ms"
    rounds = results.rows("elastic-overhead", kind="round")
    yield f"{median_of(rounds, 'elastic_percent'):.1f} % of the CPU time is the coordinator's"
    yield f"median of {len(rounds)} rounds"


def churn(results, run):
    trace, stress = run("trace"), run("stress")
    assert (trace["losses"], trace["joins"]) == (1, 4)
    yield (f"({60 * trace['trace_hours']:.0f} minutes, scaled to at most {trace['nodes_max']} "
           f"workers, played {trace['speedup']} times as fast)")
    yield f"one loss and four joins cost {100 * (1 - trace['goodput_as_played']):.1f} % as played"
    yield (f"(a join took {1000 * trace['join_stall_mean_s']:.0f} ms of it, the mean of the four; "
           f"the loss is on record with {trace['loss_stall_mean_s']} s")
    assert stress["workers"] == 6 and stress["digests_equal"] is True
    yield (f"{stress['kills']} kills, {commit_of(results, 'elasticity-2-cores', row='stress')}): "
           f"{100 * stress['goodput']:.1f} % of the steps")
    yield f"compared at step {stress['digest_compared_at_step']}"
    away = results.rows("coordinator-restart", kind="event")
    seen = results.row("coordinator-restart", kind="summary")

    def ms(field, fraction):
        values = column(away, field)
        return f"{median_of(away, field) if fraction == 0.5 else at(values, fraction):.0f}"

    made = sum(column(away, "steps_away")) / sum(column(away, "steps_due"))
    yield (f"in charge {ms('in_charge_ms', 0.5)} ms (99 %: {ms('in_charge_ms', 0.99)} ms) after "
           f"its start; its four workers make {100 * made:.1f} % of the steps that were due "
           f"meanwhile, the longest of them {ms('longest_ms', 0.5)} ms at the median (undisturbed "
           f"{seen['undisturbed_p50_ms']:.0f}; 99 %: {ms('longest_ms', 0.99)} and "
           f"{seen['undisturbed_p99_ms']:.0f}), over {len(away)} kills")


def cloud(results):
    name = "cloud-latency"
    yield commit_of(results, name)
    called = []
    events = results.rows(name, kind="event")
    for words, row in (("Compute Engine, machine ends", "gce-kill"),
                       ("Compute Engine, notice", "gce-notice"), ("EC2, machine ends", "ec2-kill"),
                       ("EC2, notice", "ec2-notice")):
        own = [event for event in events if event["row"] == row]
        assert len(own) == 10
        arrived = column(own, "request_ms")
        calls = [event["heard_ms"] + event["sent_ms"] for event in own]
        called += calls
        yield (f"| {words} | {at(arrived, 0.5):.0f} | {max(arrived):.0f} | {at(calls, 0.5):.0f} | "
               f"{max(calls):.0f} |")
    in_time = [sum(value <= 100 for value in values)
               for values in (called, column(events, "request_ms"))]
    yield (f"100 ms until the provider is called, is met by {in_time[0]} of {len(events)} events; "
           f"{in_time[1]} requests had arrived by then. Once the coordinator heard of a death only "
           f"after {max(column(events, 'heard_ms')):.0f} ms")
    polling = results.row(name, kind="polling")
    yield (f"{polling['polls_per_second']:.0f} times a second takes "
           f"{100 * polling['cpu_share_of_a_core']:.1f} % of a core")
    day = results.row("spot-day", kind="summary")
    assert not day["left"] and not day["doubled"]
    assert day["final_digest"] == day["undisturbed_digest"]
    taken = day["taken"]
    assert taken["with notice"] == taken["without a word"]
    yield ("A day of Bamboo's p3 trace (11.4 hours, begun again) at "
           f"{day['speedup']} times its speed")
    yield commit_of(results, "spot-day")
    yield (f"{sum(taken.values())} machines taken, half of them without a word; {day['requests']} "
           f"requests (repetitions included), {day['servers']} servers, {day['stock_outs']} "
           "stock-outs")
    assert round(day["cost"], 2) == round(day["cost_by_cloud"], 2)
    yield (f"${day['cost']:.2f} of a budget of {day['budget']:g} by both bills, at most "
           f"{day['per_hour_max']:.2f} of {day['budget_per_hour']:.2f} an hour at once, and after "
           f"{day['steps']:,} steps the bits of an undisturbed run")
    yield f"{100 * day['goodput']:.1f} % of the training time was not between a change"
    yield f"of the market's own time, {100 * day['natural_goodput']:.2f} %"


def tls(results):
    row = results.row("tls", kind="tls")
    for text, field in (("step", "step_ms"),
                        ('from the news of a loss to the new group ("synced")', "synced_ms")):
        yield f"| {text} | {row[field]['plain']:.1f} ms | {row[field]['tls']:.1f} ms |"
    yield f"encrypt | - | {row['tls_percent']['tls']:.1f} % |"
    jobs = results.rows("tls", kind="job")
    assert len({job["digest"] for job in jobs}) == 1
    assert {job["recoveries"] for job in jobs} == {4}
    yield f"median of {row['rounds']} jobs"
    yield commit_of(results, "tls")


def hosts(results):
    run = results.row("hosts", kind="power_offs")
    losses = results.rows("hosts", kind="power_off")
    assert len(losses) == run["losses"]
    assert {len(loss["members"]) for loss in losses} == {3}
    yield f"{run['losses']} losses"
    yield "| from the loss of power | median | 90 % | 99 % |"
    for words, field in (("to the next step on record", "next_step_ms"),
                         ("... beyond the computing of a step", "beyond_step_ms")):
        yield f"| {words} | " + " | ".join(
            f"{at(column(losses, field), fraction):.0f}" for fraction in (0.5, 0.9, 0.99)) + " |"
    yield commit_of(results, "hosts")


def bucket_size(results):
    rounds = settings_of(results, "resnet18", commit="f9f3761")
    times = [f"{median_of(one, 'cpu_ms'):.1f}" for one in rounds.values()]
    yield "ResNet-18 at 32 x 32 (45 MB of gradients"
    yield "{}, {}, {}, {}, {} and {} ms with buckets of {}, {}, {}, {}, {} and {} KiB".format(
        *times, *rounds)
    assert 1.01 < median_of(rounds["32768"], "cpu_ms") / median_of(rounds["64"], "cpu_ms") < 1.03
    yield "up to 8 MiB, 2 % more with one bucket"
    yield "512 KiB stays"
    yield "(128 KiB to 32 MiB)"


def million(results):
    run = results.row("simulator-million", kind="simulation")
    assert run["failing"] == len(results.rows("simulator-million", kind="failing_seed")) == 1
    yield (f"Seeds {run['first_seed']} to {run['first_seed'] + run['seeds'] - 1:,} were run at "
           f"{commit_of(results, 'simulator-million')}, in {run['pieces']} pieces")
    yield f"{run['views'] / 1e6:.1f} million views, {run['lost'] / 1e6:.1f} million lost members"


def worlds(results):
    """Each world's share of failing seeds, before and after the bugs were fixed."""
    runs = {run["world"]: run for run in results.rows("simulator-worlds", kind="simulation")}
    for world, run in runs.items():
        failed = results.rows("simulator-worlds", kind="failing_seed", world=world)
        assert run["failing"] == len(failed)
    failing = [runs[world]["failing"] for world in ("membership", "failover", "parameter-servers")]
    yield (f"{runs['membership']['seeds']:,}, {runs['failover']['seeds']:,} and "
           f"{runs['parameter-servers']['seeds']:,} seeds")
    yield f"{commit_of(results, 'simulator-worlds')}: {failing[0]}, {failing[1]} and none failed"
    assert failing[2] == 0
    runs = {run["world"]: run for run in
            results.rows("simulator-worlds-mended", kind="simulation")}
    membership, failover = runs["membership"], runs["failover"]
    yield f"{membership['seeds']:,} of membership and {failover['seeds']:,} of failover"
    yield (f"{commit_of(results, 'simulator-worlds-mended')}, "
           f"{membership['failing']} and none failed")
    assert failover["failing"] == 0
    (failed,) = results.rows("simulator-worlds-mended", kind="failing_seed")
    took_ms = int(failed["violations"][0].split(" took ")[1].split()[0])
    yield f"seed {failed['seed']}, in which a step takes {took_ms / 1000:.1f} s"
    since = "simulator-worlds-since"
    runs = {run["world"]: run for run in results.rows(since, kind="simulation")}
    membership, failover = runs["membership"], runs["failover"]
    yield f"{membership['seeds']:,} of membership and {failover['seeds']:,} of failover"
    yield f"{commit_of(results, since)}, none failed"
    assert membership["failing"] == failover["failing"] == 0


def planning(results):
    machine = results.row("planner", kind="machine")
    yield f"load {machine['load_average_before']:.1f} at the beginning"
    yield commit_of(results, "planner")
    rows = {kind: results.rows("planner", kind=kind) for kind in ("paths", "policy", "question")}
    assert {len(found) for found in rows.values()} == {5}
    paths, policy, question = rows.values()
    yield (f"| {paths[0]['paths']:,} paths of 16 servers over 24 hours, with "
           f"{paths[0]['losses_of_a_path']:.0f} losses each | "
           f"{median_of(paths, 'cpu_seconds'):.2f} s |")
    yield (f"| {policy[0]['paths']} of them by the replacement policy itself | "
           f"{median_of(policy, 'cpu_seconds'):.2f} s |")
    yield (f"| a question with 500 candidates, {question[0]['paths']:,} paths in all | "
           f"{median_of(question, 'cpu_seconds'):.2f} s |")


def views(results):
    machine = results.row("changes-of-view", kind="machine")
    yield f"commit {machine['commit']}"
    yield f"load {machine['load_average_before']:.1f}"
    names = {"start": "the start of the job", "leave": "one leaves at a boundary",
             "joins": "one joins", "loss and join": "one is lost, another joins",
             "loss and join, apart": "the same, each elsewhere in its step",
             "loss of a tenth": "a tenth is lost at once, others join"}
    for members in (1000, 10000):
        for change, name in names.items():
            rows = {which: [row for row in results.rows("changes-of-view", change=change,
                                                        coordinator=which)
                            if abs(row["members"] - members) <= members / 10]
                    for which in ("before", "now")}
            assert {len(each) for each in rows.values()} == {3}
            ms = {which: median_of(each, "machine_ms") for which, each in rows.items()}
            sizes = {which: each[0]["bytes_out"] / each[0]["members"]
                     for which, each in rows.items()}
            yield (f"| {name}, {members:,} members | {ms['before']:.1f} | {ms['now']:.1f} | "
                   f"{sizes['before']:,.0f} | {sizes['now']:,.0f} |")


def planner(results):
    rows = results.rows("planner-validation", kind="planner")
    for row in rows:
        unit = " points" if row["unit"] == "points" else " %"
        goal = "-" if row["goal"] is None else f"{row['goal']:g}{unit}"
        yield (f"| {row['row']} | {row['values']} | {row['plain']:.1f}{unit} | "
               f"{row['mayfly']:.1f}{unit} | {row['worst']:.1f} | {goal} | "
               f"{row['covered']} of {row['values']} | {row['half_width']:.1f}{unit} |")
    covered, values = sum(column(rows, "covered")), sum(column(rows, "values"))
    yield f"{covered} of {values} values ({100 * covered / values:.1f} %)"
    yield "inside 90 % interval"
    choices = results.rows("planner-validation", kind="choice")
    assert {row["queries"] for row in choices} == {12}
    yield f"{choices[0]['jobs']} clean jobs"
    yield "the goal is 3 %, and no limit broken by more than 3 %"
    for row in choices:
        yield (f"| {row['method']} | {row['broken']} | {row['broken_by']:.1f} % | "
               f"{row['regret']:.1f} % | {row['worst_regret']:.1f} % |")


def planner_runs(results):
    machine = results.row("planner-runs", kind="machine")
    found = results.row("planner-runs", row="summary")
    jobs = results.rows("planner-runs", row="job")
    yield (f"{found['jobs']} jobs of ResNet-20 on {machine['cores']} cores, {found['killed']} "
           f"kills ({commit_of(results, 'planner-runs')})")
    for name in ("total time", "cost", "servers lost"):
        row = found[name]
        width = f"{100 * row['half_width']:.1f} %" if name == "total time" else "-"
        error = (f"{100 * row['median_error']:.1f} % | {100 * row['worst_error']:.1f} %"
                 if name == "total time" else "- | -")
        yield f"| {name} | {row['inside']} of {row['of']} | {error} | {width} |"
    errors = [100 * (time["median"] / time["actual"] - 1) for time in
              (row["compared"]["total time"] for row in jobs if row["workers"] == 3)]
    yield f"{-max(errors):.0f} to {-min(errors):.0f} % too fast"
    speeds = [value["inside"] for row in jobs for key, value in row["compared"].items()
              if key.startswith("speed of")]
    yield f"| speed of each number of workers | {sum(speeds)} of {len(speeds)} | - | - | - |"
    yield "inside 90 % interval"


def injections(results):
    rows = {(row["cause"], row["scope"]): row
            for row in results.rows("injections", row="summary", share=0.6)}
    assert {row["rounds"] for row in rows.values()} == {2}
    yield "that was to be 60 % longer"
    for cause, what in (("slow", "computing"), ("delay", "messages"), ("fetch", "reading"),
                        ("prep", "preparing")):
        for scope, who in (("one", "one worker"), ("all", "all")):
            if row := rows.get((cause, scope)):
                named = f"{row['named']:.2f}" if scope == "one" else ""
                yield (f"| {what}, {who} | {100 * row['step_longer']:.0f} % | "
                       f"{row['charged']:.2f} | {row['leak']:.2f} | {named} |")


def what_if(results):
    rows = {row["case"]: row for row in results.rows("what_if", row="summary")}
    assert {row["rounds"] for row in rows.values()} == {3}
    for case, row in rows.items():
        yield (f"| {case} | {row['questions']} | {100 * row['median_error']:.1f} % | "
               f"{100 * row['worst_error']:.1f} % (`{row['worst_question'].split(': ')[1]}`) |")


DOCUMENTS = {
    "README.md": {"recovery": recovery, "speed": speed},
    "docs/accuracy.md": {"resnet20": accuracy("resnet20"), "resnet32": accuracy("resnet32")},
    "docs/benchmarks.md": {"steps": steps, "steps-zen4": steps_zen4,
                           "steps-pytorch-2": steps_pytorch2, "interfaces": interfaces,
                           "allreduce": all_reduce, "wire": wire, "wire-delay": wire_delay,
                           "reform": reform, "exchange": exchange,
                           "jpeg": jpeg, "settings": settings,
                           "elasticity": elasticity, "tls": tls, "hosts": hosts,
                           "cloud": cloud, "planner": planning, "injections": injections,
                           "what-if": what_if, "gpu": gpu, "views": views},
    "docs/comparison.md": {"comparison": comparison, "simulated": simulated, "compare": compare},
    "docs/data.md": {"store": store, "store-hosts": store_hosts, "store-epochs": store_epochs,
                     "searches": searches, "store-kills": store_kills},
    "docs/library.md": {"program": program, "program-accuracy": program_accuracy},
    "docs/planner_validation.md": {"planner": planner, "own-runs": planner_runs},
    "docs/HACKING.md": {"million": million, "worlds": worlds},
    "docs/adr/0011-bucket-size.md": {"buckets": bucket_size},
}
