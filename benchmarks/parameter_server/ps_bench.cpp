#include "benchmarks/parameter_server/ps_bench.hpp"

#include <fmt/format.h>
#include <sys/socket.h>
#include <algorithm>
#include <atomic>
#include <barrier>
#include <thread>

#include "base/aligned_buffer.hpp"
#include "base/result.hpp"
#include "base/statistics.hpp"
#include "base/try_assign.hpp"
#include "base/unique_fd.hpp"
#include "benchmarks/bench_arguments.hpp"
#include "benchmarks/machine_facts.hpp"
#include "benchmarks/parameter_server/ps_cluster.hpp"
#include "engine/membership/exit_codes.hpp"
#include "engine/run/record_json.hpp"

namespace mayfly::bench {
namespace {

constexpr std::size_t kTransferMax = std::size_t{1} << 20;  // the same as in shards
constexpr std::uint64_t kWarmUp = 2;                        // exchanges of each worker
constexpr std::uint64_t kExchangesMin = 8;
constexpr std::uint64_t kSwitchSteps = 40;  // steps of each phase

struct Measurement {
  double cpu_per_gb = 0;  ///< seconds
  double gb_per_second = 0;
  double shared = 0;  ///< share of the bytes in shared memory
};

double gigabytes_of(const PsBenchOptions& options, std::size_t bytes, std::uint64_t exchanges) {
  return 2.0 * static_cast<double>(bytes) * static_cast<double>(exchanges * options.workers) / 1e9;
}

/// The exchanges of each worker in one round.
std::uint64_t exchanges_for(const PsBenchOptions& options, std::size_t bytes) {
  const double one = gigabytes_of(options, bytes, 1);
  return std::max<std::uint64_t>(kExchangesMin,
                                 static_cast<std::uint64_t>(options.gigabytes / one));
}

bool send_all(int fd, const std::byte* data, std::size_t bytes) {
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t sent =
        ::send(fd, data + done, std::min(kTransferMax, bytes - done), MSG_NOSIGNAL);
    if (sent <= 0) {
      return false;
    }
    done += static_cast<std::size_t>(sent);
  }
  return true;
}

bool receive_all(int fd, std::byte* data, std::size_t bytes) {
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t got = ::recv(fd, data + done, std::min(kTransferMax, bytes - done), 0);
    if (got <= 0) {
      return false;
    }
    done += static_cast<std::size_t>(got);
  }
  return true;
}

/// One worker's connection to one shard.
struct Wire {
  UniqueFd worker;
  UniqueFd shard;
};

Result<std::vector<Wire>> make_wires(std::size_t count) {
  std::vector<Wire> wires;
  for (std::size_t i = 0; i < count; ++i) {
    int ends[2] = {-1, -1};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
      return Error{Errc::kIo, "cannot make a pair of sockets"};
    }
    wires.push_back({UniqueFd(ends[0]), UniqueFd(ends[1])});
  }
  return wires;
}

/// Only the communication pattern: a thread per worker, and one per connection at the shards;
/// blocking calls.
Result<Measurement> measure_raw(const PsBenchOptions& options, std::size_t bytes) {
  TRY_ASSIGN(std::vector<Wire> made, make_wires(std::size_t{options.workers} * options.shards));
  const std::vector<Wire>& wires = made;
  const std::size_t part = bytes / options.shards;
  const std::uint64_t exchanges = exchanges_for(options, bytes);
  std::atomic<bool> failed = false;
  Instant began;
  double cpu_began = 0;
  std::barrier warm(options.workers, [&]() noexcept {
    began = monotonic_now();
    cpu_began = process_cpu_seconds();
  });
  std::vector<std::thread> threads;
  for (const Wire& wire : wires) {
    threads.emplace_back([&, fd = wire.shard.get()] {
      AlignedBuffer<std::byte> values(part);
      AlignedBuffer<std::byte> gradient(part);
      for (std::uint64_t i = 0; i < kWarmUp + exchanges; ++i) {
        if (!receive_all(fd, gradient.data(), part) || !send_all(fd, values.data(), part)) {
          failed = true;
          return;
        }
      }
    });
  }
  for (std::uint32_t w = 0; w < options.workers; ++w) {
    threads.emplace_back([&, w] {
      AlignedBuffer<std::byte> gradient(part * options.shards);
      AlignedBuffer<std::byte> parameters(part * options.shards);
      for (std::uint64_t i = 0; i < kWarmUp + exchanges; ++i) {
        if (i == kWarmUp) {
          warm.arrive_and_wait();
        }
        for (std::uint32_t s = 0; s < options.shards; ++s) {
          const int fd = wires[w * options.shards + s].worker.get();
          failed = !send_all(fd, gradient.data() + s * part, part) || failed;
        }
        for (std::uint32_t s = 0; s < options.shards; ++s) {
          const int fd = wires[w * options.shards + s].worker.get();
          failed = !receive_all(fd, parameters.data() + s * part, part) || failed;
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  if (failed) {
    return Error{Errc::kIo, "a connection of the plain loop broke"};
  }
  const double gigabytes = gigabytes_of(options, part * options.shards, exchanges);
  return Measurement{(process_cpu_seconds() - cpu_began) / gigabytes,
                     gigabytes / to_seconds(monotonic_now() - began), 0};
}

/// Transfers the same bytes with Mayfly's shards and workers.
Result<Measurement> measure_ours(const PsBenchOptions& options, std::size_t bytes,
                                 bool share_memory) {
  const std::uint64_t exchanges = exchanges_for(options, bytes);
  PsClusterOptions cluster;
  cluster.elements = bytes / sizeof(float);
  cluster.workers = options.workers;
  cluster.shards = options.shards;
  cluster.steps = kWarmUp + exchanges;
  cluster.share_memory = share_memory;
  TRY_ASSIGN(const PsClusterRun ran, run_ps_cluster(cluster));
  const std::vector<TimedUpdate>& updates = ran.updates;
  const TimedUpdate& first = updates[kWarmUp * options.workers - 1];
  const TimedUpdate& last = updates.back();
  const double gigabytes = gigabytes_of(options, bytes, exchanges);
  return Measurement{(last.cpu_seconds - first.cpu_seconds) / gigabytes,
                     gigabytes / to_seconds(last.at - first.at), ran.shared};
}

struct Series {
  std::vector<double> cpu;
  std::vector<double> rate;
  std::vector<double> shared;

  void add(const Measurement& measurement) {
    cpu.push_back(measurement.cpu_per_gb);
    rate.push_back(measurement.gb_per_second);
    shared.push_back(measurement.shared);
  }
};

void print_measurement(const PsBenchOptions& options, const char* contestant, std::size_t bytes,
                       std::uint32_t round, const Measurement& measurement) {
  if (options.json) {
    fmt::print("{}\n", engine::json_text({{"kind", "exchange"},
                                          {"contestant", contestant},
                                          {"bytes", bytes},
                                          {"round", round},
                                          {"cpu_seconds_per_gb", measurement.cpu_per_gb},
                                          {"gb_per_second", measurement.gb_per_second},
                                          {"shared", measurement.shared}}));
  }
}

/// One line of the table.
void print_row(std::size_t bytes, const Series& raw, const Series& ours) {
  fmt::print("{:>9} KiB  {:>9.3f} {:>7.3f} {:>6.2f}x {:>12.2f} {:>7.2f} {:>16.0f} %\n",
             bytes / 1024, median(raw.cpu), median(ours.cpu), median(ours.cpu) / median(raw.cpu),
             median(raw.rate), median(ours.rate), 100 * median(ours.shared));
}

void print_summary(const PsBenchOptions& options, std::size_t bytes, const Series& raw,
                   const Series& ours, const Series& sockets) {
  const auto ratio = [&raw](const Series& series) { return median(series.cpu) / median(raw.cpu); };
  fmt::print("{}\n", engine::json_text({{"kind", "summary"},
                                        {"bytes", bytes},
                                        {"workers", options.workers},
                                        {"shards", options.shards},
                                        {"rounds", options.rounds},
                                        {"plain_cpu_seconds_per_gb", median(raw.cpu)},
                                        {"mayfly_cpu_seconds_per_gb", median(ours.cpu)},
                                        {"cpu_ratio", ratio(ours)},
                                        {"plain_gb_per_second", median(raw.rate)},
                                        {"mayfly_gb_per_second", median(ours.rate)},
                                        {"shared", median(ours.shared)},
                                        {"sockets_cpu_seconds_per_gb", median(sockets.cpu)},
                                        {"sockets_cpu_ratio", ratio(sockets)},
                                        {"sockets_gb_per_second", median(sockets.rate)}}));
}

Result<void> bench_exchange(const PsBenchOptions& options, std::size_t bytes) {
  Series raw;
  Series ours;
  Series sockets;
  const auto measure = [&](const char* contestant, std::uint32_t round, Series& series,
                           const Result<Measurement>& measured) -> Result<void> {
    if (!measured.ok()) {
      return measured.error();
    }
    series.add(measured.value());
    print_measurement(options, contestant, bytes, round, measured.value());
    return {};
  };
  for (std::uint32_t round = 1; round <= options.rounds; ++round) {
    for (Result<void> done :
         {measure("plain", round, raw, measure_raw(options, bytes)),
          measure("mayfly", round, ours, measure_ours(options, bytes, true)),
          measure("mayfly-sockets", round, sockets, measure_ours(options, bytes, false))}) {
      if (!done.ok()) {
        return done;
      }
    }
  }
  if (options.json) {
    print_summary(options, bytes, raw, ours, sockets);
  } else {
    print_row(bytes, raw, ours);
    print_row(bytes, raw, sockets);
  }
  return {};
}

/// Milliseconds between the last update before a switch and the first one after it, for both
/// directions, and between two rounds of bsp.
struct SwitchTimes {
  std::vector<double> to_asp;
  std::vector<double> to_bsp;
  std::vector<double> round;
};

Result<void> time_switches(const PsBenchOptions& options, std::size_t bytes, SwitchTimes& times) {
  PsClusterOptions cluster;
  cluster.phases = fmt::format("bsp:{0}steps,asp:{0}steps,bsp", kSwitchSteps);
  cluster.elements = bytes / sizeof(float);
  cluster.workers = options.workers;
  cluster.shards = options.shards;
  cluster.steps = 3 * kSwitchSteps;
  TRY_ASSIGN(const PsClusterRun ran, run_ps_cluster(cluster));
  const std::vector<TimedUpdate>& updates = ran.updates;
  const std::uint64_t to_asp = kSwitchSteps * options.workers;
  for (std::size_t i = 1; i < updates.size(); ++i) {
    const double gap = to_ms(updates[i].at - updates[i - 1].at);
    if (updates[i - 1].slices == to_asp) {
      times.to_asp.push_back(gap);
    } else if (updates[i - 1].slices == 2 * to_asp) {
      times.to_bsp.push_back(gap);
    } else if (updates[i].slices <= to_asp) {
      times.round.push_back(gap);
    }
  }
  return {};
}

Result<void> bench_switch(const PsBenchOptions& options, std::size_t bytes) {
  SwitchTimes times;
  for (std::uint32_t round = 0; round < options.rounds; ++round) {
    TRY(time_switches(options, bytes, times));
  }
  if (options.json) {
    fmt::print("{}\n", engine::json_text({{"kind", "switch"},
                                          {"bytes", bytes},
                                          {"workers", options.workers},
                                          {"bsp_to_asp_ms", median(times.to_asp)},
                                          {"asp_to_bsp_ms", median(times.to_bsp)},
                                          {"bsp_round_ms", median(times.round)}}));
    return {};
  }
  fmt::print(
      "{:>9} KiB  switch bsp to asp {:.2f} ms, asp to bsp {:.2f} ms; a round of bsp "
      "{:.2f} ms\n",
      bytes / 1024, median(times.to_asp), median(times.to_bsp), median(times.round));
  return {};
}

cli::CommandSpec ps_spec() {
  cli::CommandSpec spec;
  spec.name = "bench ps";
  spec.help = "parameter servers: CPU per GB beside plain sockets, and the cost of a switch";
  spec.options = {{"sizes", "LIST", "bytes of the parameters (default 2M,100M)"},
                  {"workers", "N", "(default 2)"},
                  {"shards", "N", "(default 1)"},
                  {"rounds", "N", "of all in turn (default 5)"},
                  {"gigabytes", "X", "moved by each in a round (default 2)"},
                  {"json", "", "JSON lines: every measurement, then medians"}};
  return spec;
}

Result<PsBenchOptions> ps_options(const cli::ParsedArguments& arguments) {
  constexpr std::uint32_t kThreadsMax = 64;
  PsBenchOptions options;
  options.json = arguments.has("json");
  TRY(read_sizes(arguments, options.sizes));
  TRY(cli::read_number(arguments, "workers", options.workers));
  TRY(cli::read_number(arguments, "shards", options.shards));
  TRY(cli::read_number(arguments, "rounds", options.rounds));
  TRY(cli::read_number(arguments, "gigabytes", options.gigabytes));
  for (const std::size_t bytes : options.sizes) {
    if (bytes / sizeof(float) < options.shards) {
      return Error{Errc::kInvalidInput, "--sizes: a shard would have nothing"};
    }
  }
  if (options.workers > kThreadsMax || options.shards > kThreadsMax) {
    return Error{Errc::kInvalidInput, "--workers and --shards are at most 64"};
  }
  return options;
}

}  // namespace

int bench_ps(const PsBenchOptions& options) {
  if (options.json) {
    fmt::print("{}\n", machine_line(""));
  } else {
    fmt::print(
        "{} workers, {} shards; medians of {} rounds\n"
        "{:>13}  CPU s/GB: plain, mayfly, ratio   GB/s: plain, mayfly   bytes in shared memory\n",
        options.workers, options.shards, options.rounds, "parameters");
  }
  for (const auto& bench : {bench_exchange, bench_switch}) {
    for (const std::size_t bytes : options.sizes) {
      if (Result<void> done = bench(options, bytes); !done.ok()) {
        return engine::refuse(done.error(), engine::kExitFailed);
      }
    }
  }
  return engine::kExitDone;
}

BenchCommand ps_command() {
  return make_command(ps_spec(), ps_options, &Benches::ps);
}

}  // namespace mayfly::bench
