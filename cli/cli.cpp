#include "cli/cli.hpp"

#include <algorithm>
#include <iterator>
#include <set>
#include <string_view>

#include "cli/documentation.hpp"
#include "cli/plan_fit.hpp"
#include "cli/plan_search.hpp"
#include "engine/job/job.hpp"
#include "engine/run/record_json.hpp"

namespace mayfly::cli {
namespace {

const OptionSpec kAsJson = {"json", "", "print JSON"};
const OptionSpec kConfig = {"config", "FILE", "settings from a TOML file"};
const OptionSpec kProgramDir = {"program-dir", "DIR",
                                "folder of your program, which is copied to each server (.)"};
const OptionSpec kRunDir = {"run-dir", "DIR",
                            "take the endpoint and token from this run directory"};
const OptionSpec kTokenFile = {"token-file", "FILE", "the job's token"};
const OptionSpec kTimeout = {"timeout", "SECONDS", "how long to wait for an answer (5)"};
const OptionSpec kIsa = {"isa", "NAME",
                         "instruction set: auto, avx512, avx2 or portable (slow, for checks)"};
const OptionSpec kConvKernels = {"conv-kernels", "NAME",
                                 "convolutions: auto (the faster by layer), direct or winograd"};
const OptionSpec kSkipCorrupt = {"skip-corrupt", "", "skip unusable images and count them"};

Subcommand launch(std::string name, std::string help, int (*run)(const ParsedArguments&, Context&),
                  std::set<std::string> short_help = {}) {
  return {.spec = {.name = std::move(name),
                   .help = std::move(help),
                   .options = {kConfig},
                   .all_settings = true,
                   .short_help = std::move(short_help)},
          .run = run};
}

/// The settings that most users need, and these.
std::set<std::string> common_settings_and(std::set<std::string> others) {
  for (const engine::Setting& setting : engine::settings()) {
    if (setting.is_common) {
      others.insert(setting.name);
    }
  }
  return others;
}

/// The settings of a process that joins a job elsewhere; the coordinator sends it the others.
const std::set<std::string> kJoiningSettings = {"coordinator", "token_file", "coordinator_timeout",
                                                "bind_host",   "run_dir",    "threads",
                                                "device",      "data",       "resume"};

std::set<std::string> joining_settings_and(std::set<std::string> others) {
  others.insert(kJoiningSettings.begin(), kJoiningSettings.end());
  return others;
}

/// Those of the networks, and what cannot be combined with a program of the user's own.
std::set<std::string> settings_not_for_programs() {
  std::set<std::string> names = settings_of_networks();
  names.insert(settings_of_our_workers().begin(), settings_of_our_workers().end());
  for (const engine::Setting& setting : engine::settings()) {
    if (std::string_view(setting.name).starts_with("ps") ||
        std::string_view(setting.name).starts_with("straggler") ||
        std::string_view(setting.name).starts_with("evaluator") ||
        std::string_view(setting.name).starts_with("divergence")) {
      names.insert(setting.name);
    }
  }
  names.insert({"model", "init_from", "device", "standby", "sync", "phases", "shards", "slices",
                "lr_rule", "asp_warm_up", "switch_order", "train_steps", "on_divergence"});
  return names;
}

Subcommand run_command() {
  Subcommand command = {.spec = {.name = "run",
                                 .help = "train a program of your own (see docs/library.md) with "
                                         "elastic workers, on this machine, on --hosts, or on the "
                                         "servers of a --cloud-provider",
                                 .positionals = "[flags] -- PROGRAM [ARGUMENTS]",
                                 .options = {kConfig, kProgramDir},
                                 .all_settings = true,
                                 .hidden_settings = settings_not_for_programs()},
                        .run = run_program};
  command.spec.defaults.hang_max_ms = kProgramHangMaxMs;
  return command;
}

Subcommand worker_command() {
  return {.spec = {.name = "worker",
                   .help = "run one worker that joins --coordinator HOST:PORT",
                   .positionals = "[flags] [-- PROGRAM [ARGUMENTS]]",
                   .options = {kConfig},
                   .all_settings = true,
                   .short_help = kJoiningSettings},
          .run = worker};
}

/// A command for a running job; `number` names its argument besides the job, if it has one.
Subcommand order(std::string name, std::string help, const std::string& number,
                 int (*run)(const ParsedArguments&, Context&)) {
  return {.spec = {.name = std::move(name),
                   .help = std::move(help),
                   .positionals = "[RUN_DIR | ENDPOINT]" + (number.empty() ? "" : " " + number),
                   .options = {kRunDir, kTokenFile, kTimeout, kAsJson}},
          .run = run};
}

Subcommand status_command() {
  Subcommand command = order("status", "show a running job", "", status);
  command.spec.options.push_back({"watch", "", "repeat until the job ends"});
  command.spec.options.push_back(
      {"interval", "SECONDS", "with --watch: time between two updates (1)"});
  command.spec.options.push_back(
      {"plan", "FILE", "plan for the time and cost that are left (default: that of the run)"});
  return command;
}

Subcommand cloud_command() {
  return {.spec = {.name = "cloud",
                   .help = "list or release a job's servers, or look for problems (doctor)",
                   .positionals = "list JOB | release JOB | doctor",
                   .options = {kConfig, kAsJson},
                   .settings = {"cloud_provider", "device", "reduction", "hosts", "hostfile", "ssh",
                                "remote_dir", "remote_program", "cloud_command", "cloud_sbatch",
                                "cloud_options", "cloud_offers", "cloud_bundle",
                                "cloud_worker_args", "cloud_job", "run_dir"}},
          .run = cloud};
}

/// The settings that can be chosen for the jobs of `compare` and `tune-switch`.
const std::vector<std::string> kComparedSettings = {"model",
                                                    "data",
                                                    "image_size",
                                                    "workers",
                                                    "threads",
                                                    "steps",
                                                    "global_batch",
                                                    "microbatch",
                                                    "lr",
                                                    "momentum",
                                                    "lr_schedule",
                                                    "warmup_epochs",
                                                    "weight_decay",
                                                    "augment",
                                                    "ps",
                                                    "shards",
                                                    "slices",
                                                    "lr_rule",
                                                    "inject",
                                                    "chaos",
                                                    "backend",
                                                    "reduction",
                                                    "straggler_factor",
                                                    "straggler_windows",
                                                    "evaluate",
                                                    "eval_every_epochs",
                                                    "silence_max_ms",
                                                    "isa",
                                                    "dtype"};

Subcommand switch_tuning() {
  return {
      .spec = {.name = "tune-switch",
               .help = "find the earliest switch from bsp to a faster policy that keeps the "
                       "accuracy of bsp",
               .options = {{"output", "DIR",
                            "records, table and charts; continues an interrupted search there "
                            "(default: tune-switch)"},
                           {"then", "PHASES",
                            "phases after bsp (default: asp), e.g. ssp:2 or asp{lr=0.5x}"},
                           {"condition", "NAME",
                            "clean (default), straggler, kill or straggler+kill"},
                           {"tolerance", "SHARE", "accepted loss of mean accuracy (default 0.01)"},
                           {"runs", "N", "runs at each point (default 5; 1 with --quick)"},
                           {"probes", "N",
                            "most points tried besides bsp alone (default 5; 3 with --quick)"},
                           {"first-seed", "S", "first seed of each point's runs (default 1)"},
                           {"quick", "", "a small job of 64 steps, for a first impression"},
                           kAsJson},
               .settings = kComparedSettings,
               .defaults = compared_defaults()},
      .run = tune_switch};
}

Subcommand comparison() {
  return {
      .spec =
          {.name = "compare",
           .help =
               "train the same job under all-reduce and parameter servers, and compare the results",
           .options =
               {{"output", "DIR",
                 "records, table and charts; continues an interrupted comparison there (default: "
                 "comparison)"},
                {"variants", "LIST",
                 "separated by spaces: allreduce, or phases, optionally with +greedy or +elastic "
                 "(default: allreduce bsp ssp:2 asp bsp:25%,asp and that with both)"},
                {"conditions", "LIST",
                 "separated by spaces: clean, straggler, kill, straggler+kill (default: the first "
                 "3)"},
                {"seeds", "N", "runs of each variant and condition (default 3; 1 with --quick)"},
                {"first-seed", "S", "first seed (default 1)"},
                {"spot-price", "X",
                 "what an hour of a worker costs as a spot server; adds a column"},
                {"on-demand-price", "X", "what it costs as an on-demand server; adds a column"},
                {"quick", "", "a small job of 64 steps, for a first impression"},
                kAsJson},
           .settings = kComparedSettings,
           .defaults = compared_defaults()},
      .run = compare};
}

std::string top_help() {
  std::string text =
      "Mayfly trains ResNets, and models of your own, data-parallel on workers that may disappear "
      "at any moment.\n\n"
      "Usage: mayfly COMMAND [flags]\n\n";
  for (const DocumentedCommand& command : documented_commands()) {
    const std::size_t blanks = command.name.size() < 15 ? 15 - command.name.size() : 1;
    text += "  " + command.name + std::string(blanks, ' ') + command.help + "\n";
  }
  return text + "\n" + about_settings() + "\nExit codes: " + about_exit_codes();
}

Subcommand evaluator_command() {
  return {
      .spec = {.name = "evaluator",
               .help = "measure every checkpoint of a run as it appears, until the run ends",
               .options = {{"run-dir", "DIR", "the run; results go to its evaluations.jsonl"},
                           {"data", "SPEC", "data set; default: the run's"},
                           {"threads", "N",
                            "compute threads (default 1), at low priority; 0 = one per core"},
                           kIsa,
                           kConvKernels,
                           {"image-size", "PIXELS", "input resolution (default: as in the run)"},
                           kSkipCorrupt}},
      .run = evaluator};
}

Subcommand token_command() {
  return {.spec = {.name = "token",
                   .help = "make a job's token: print it, or write FILE for --token-file",
                   .positionals = "[FILE]",
                   .options = {{"tls", "", "for a job whose connections are encrypted"}}},
          .run = token};
}

Subcommand documentation_command() {
  return {.spec = {.name = "documentation",
                   .help = "write manual pages and shell completions into a folder",
                   .positionals = "FOLDER"},
          .run = documentation};
}

Subcommand profile_command() {
  return {
      .spec = {.name = "profile",
               .help = "show what the time of a run was spent on and which workers the others "
                       "waited for, or measure it by runs of a job with parts of it left out",
               .positionals = "RUN_DIR | --difference JOB.toml",
               .options =
                   {{"what-if", "CHANGES",
                     "what a step of the run would take with other workers: loaders=4 (threads of "
                     "each), cached=50% (of the images in memory), storage=20MB/s (for each), "
                     "workers=6, without=3; 'A,B' asks for A and B together, 'A;B' for one after "
                     "the other"},
                    {"difference", "JOB.toml",
                     "run this job with parts left out, and print what each part takes of a step"},
                    {"output", "DIR", "folder for the runs of --difference (default: differences)"},
                    {"rounds", "N", "runs of each kind, one after the other (default 5)"},
                    {"steps", "N", "steps of each run, without the first ten (default 60)"},
                    kAsJson}},
      .run = profile};
}

Subcommand dashboard_command() {
  return {.spec = {.name = "dashboard",
                   .help = "show runs as a web page: curves, members, recoveries and costs",
                   .positionals = "RUN_DIR...",
                   .options = {{"report", "FILE",
                                "write the page with all numbers into one HTML file, and end"},
                               {"port", "P", "port of the page (default: a free one)"},
                               {"bind-host", "HOST",
                                "address to listen on (127.0.0.1: this host only)"},
                               {"host-name", "NAME",
                                "a name of this host under which browsers may request the page"}}},
          .run = dashboard};
}

Subcommand data_command() {
  return {.spec = {.name = "data",
                   .help = "make a folder of synthetic photographs with the sizes of ImageNet's, "
                           "for measurements",
                   .positionals = "make FOLDER",
                   .options = {{"images", "N",
                                "training images (default 5000); 1/25 of that as test images"},
                               {"size", "PIXELS",
                                "longer side of most images, 32 to 2730 (default 500)"},
                               {"seed", "S", "random seed of the images (default 1)"},
                               {"threads", "N", "threads that make images (default: one per core)"},
                               kAsJson}},
          .run = data};
}

Subcommand digest_command() {
  return {.spec = {.name = "digest",
                   .help = "verify a checkpoint and print the digest of its state",
                   .positionals = "CHECKPOINT",
                   .options = {kAsJson}},
          .run = digest};
}

Subcommand plan_command() {
  std::vector<OptionSpec> options = plan_options();
  std::ranges::copy(plan_fit_options(), std::back_inserter(options));
  options.push_back(kConfig);
  options.push_back(kAsJson);
  return {.spec = {.name = "plan",
                   .help = "choose the servers of a job on a market, predict times and costs from "
                           "measurements, take measurements from runs of your own, or compare a "
                           "run with its plan",
                   .positionals = "[predict | fit RUN_DIR... | check RUN_DIR]",
                   .options = std::move(options),
                   .settings = plan_settings()},
          .run = plan};
}

Subcommand bundle_command() {
  return {
      .spec = {.name = "bundle",
               .help = "pack this program and its libraries into one archive, for machines that "
                       "have neither",
               .positionals = "FILE",
               .options =
                   {{"nvidia-libraries", "", "cuDNN and NCCL, too, for servers with a bare driver"},
                    {"program-dir", "DIR",
                     "folder of a program of your own, which is started there (cloud_program)"}}},
      .run = bundle};
}

bool asks_for_help(const std::string& word) {
  return word == "--help" || word == "-h" || word == "help";
}

int unknown_command(const std::string& word, const Context& context) {
  std::vector<std::string> names = {"bench", "simulate"};
  for (const Subcommand& command : subcommands()) {
    names.push_back(command.spec.name);
  }
  return context.complain(
      "unknown command '" + word + "'" + engine::suggestion(word, names) + " (see mayfly --help)",
      kExitUsage);
}

int run_subcommand(const Subcommand& command, const std::vector<std::string>& words,
                   Context& context) {
  const Result<ParsedArguments> parsed = parse_arguments(command.spec, words);
  if (!parsed.ok()) {
    return context.complain(parsed.error().detail, kExitUsage);
  }
  if (parsed.value().help_asked) {
    context.out << help_text(command.spec, parsed.value().is_help_all);
    return kExitDone;
  }
  if (command.spec.positionals.empty() && !parsed.value().positionals.empty()) {
    return context.complain(
        command.spec.name + ": unexpected argument '" + parsed.value().positionals[0] + "'",
        kExitUsage);
  }
  return command.run(parsed.value(), context);
}

}  // namespace

int Context::complain(const std::string& text, int exit_code) const {
  err << "mayfly: " << text << "\n";
  return exit_code;
}

int Context::complain(const Error& error) const {
  const bool mendable = error.code == Errc::kInvalidInput || error.code == Errc::kNotFound;
  return complain(error.detail, mendable ? kExitUsage : kExitFailed);
}

const std::vector<Subcommand>& subcommands() {
  static const std::vector<Subcommand> list = {
      launch("train", "train a model with elastic local workers, or join a running job", train),
      run_command(),
      worker_command(),
      launch("ps-server", "run one parameter server of a job with --sync or --phases", ps_server,
             joining_settings_and({"ps_index"})),
      launch("coordinator", "run the coordinator alone", coordinator,
             common_settings_and({"bind_host", "port", "token_file"})),
      status_command(),
      order("scale", "change the number of workers of a running job", "WORKERS", scale),
      order("give-up", "give up servers of a provider and replace them", "SERVERS", give_up),
      order("drain", "make one worker leave at the next step boundary", "MEMBER", drain),
      order("pause", "pause a running job", "", pause),
      order("resume", "resume a paused job", "", resume),
      order("stop", "write a checkpoint and stop a running job", "", stop),
      cloud_command(),
      {.spec = {.name = "eval",
                .help = "measure a checkpoint's accuracy on the test part of a data set",
                .positionals = "CHECKPOINT",
                .options = {{"data", "SPEC", "data set; default: the one of the checkpoint's run"},
                            {"threads", "N", "compute threads; 0 = one per core"},
                            kIsa,
                            kConvKernels,
                            {"image-size", "PIXELS",
                             "input resolution (default: as in the run, else by the data)"},
                            kSkipCorrupt,
                            kAsJson}},
       .run = evaluate},
      evaluator_command(),
      {.spec = {.name = "inspect",
                .help = "show the contents of a checkpoint, or how this machine computes a network",
                .positionals = "CHECKPOINT | --kernels | --memory",
                .options = {{"kernels", "", "show the kernel of each convolution of --model"},
                            {"memory", "",
                             "show where a compute thread keeps the tensors of a --microbatch"},
                            kAsJson},
                .settings = {"model", "image_size", "microbatch", "isa", "dtype", "conv_kernels"}},
       .run = inspect},
      data_command(),
      digest_command(),
      {.spec = {.name = "export",
                .help = "write a checkpoint's weights as safetensors with torchvision's names",
                .positionals = "CHECKPOINT",
                .options = {{"output", "FILE", "the file to write; must not exist"}, kAsJson}},
       .run = export_weights},
      {.spec = {.name = "import",
                .help = "make a checkpoint from weights that PyTorch wrote as safetensors",
                .positionals = "FILE",
                .options = {{"model", "NAME", "network that the weights are for"},
                            {"classes", "N", "number of classes; default: as in the file"},
                            {"output", "FOLDER",
                             "where to write the checkpoint step-0; must not exist"},
                            kAsJson}},
       .run = import_weights},
      dashboard_command(),
      profile_command(),
      plan_command(),
      token_command(),
      bundle_command(),
      comparison(),
      switch_tuning(),
      documentation_command(),
      {.spec = {.name = "version", .help = "print the version", .options = {kAsJson}},
       .run = version}};
  return list;
}

int version(const ParsedArguments& arguments, Context& context) {
  if (arguments.has("json")) {
    context.out << engine::json_text(
                       {{"version", engine::kVersion}, {"protocol", elastic::kProtocolVersion}})
                << "\n";
  } else {
    context.out << "mayfly " << engine::kVersion << "\n";
  }
  return kExitDone;
}

int run_cli(const std::vector<std::string>& words, Context& context) {
  if (words.empty()) {
    context.err << top_help();
    return kExitUsage;
  }
  if (asks_for_help(words[0])) {
    context.out << top_help();
    return kExitDone;
  }
  const std::vector<std::string> rest(words.begin() + 1, words.end());
  if (words[0] == "bench") {
    return context.services.bench(rest, context);
  }
  if (words[0] == "simulate") {
    return context.services.simulate(rest, context);
  }
  const std::string name = words[0] == "--version" ? "version" : words[0];
  const auto& list = subcommands();
  const auto command = std::find_if(list.begin(), list.end(),
                                    [&name](const Subcommand& c) { return c.spec.name == name; });
  if (command == list.end()) {
    return unknown_command(name, context);
  }
  return run_subcommand(*command, rest, context);
}

bool starts_a_worker(const std::vector<std::string>& words, bool in_launcher) {
  const bool is_program = std::ranges::find(words, "--") != words.end();  // it has its own sentinel
  return !words.empty() && !is_program &&
         (words[0] == "worker" || words[0] == "ps-server" || (words[0] == "train" && in_launcher));
}

}  // namespace mayfly::cli
