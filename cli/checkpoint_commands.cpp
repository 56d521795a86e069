#include "cli/checkpoint_commands.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/try_assign.hpp"
#include "cli/cli.hpp"
#include "engine/config/config.hpp"
#include "engine/run/record_json.hpp"
#include "nn/safetensors.hpp"

namespace mayfly::cli {
namespace {

/// A file of a checkpoint with its tensors (none for the manifest), in the order of their data.
struct FileContent {
  std::string name;
  std::uint64_t bytes = 0;
  std::vector<nn::NamedTensor> tensors;
};

Result<std::vector<nn::NamedTensor>> tensors_of(ByteSpan file) {
  TRY_ASSIGN(auto by_name, nn::decode_safetensors(file));
  std::vector<nn::NamedTensor> tensors;
  for (auto& [name, tensor] : by_name) {
    tensors.push_back({name, std::move(tensor)});
  }
  std::ranges::stable_sort(tensors, {},
                           [](const nn::NamedTensor& each) { return each.tensor.bytes.data(); });
  return tensors;
}

Result<std::vector<FileContent>> contents_of(const engine::LoadedCheckpoint& checkpoint) {
  std::vector<FileContent> contents;
  for (const auto& [name, bytes] : checkpoint.files) {
    FileContent content{name, bytes.size(), {}};
    if (name != nn::kManifestFile) {
      Result<std::vector<nn::NamedTensor>> tensors = tensors_of(bytes);
      if (!tensors.ok()) {
        return Error{tensors.error().code,
                     checkpoint.path + "/" + name + ": " + tensors.error().detail};
      }
      content.tensors = std::move(tensors).value();
    }
    contents.push_back(std::move(content));
  }
  return contents;
}

engine::json::object json_of(const FileContent& file) {
  engine::json::array tensors;
  for (const auto& [name, tensor] : file.tensors) {
    tensors.push_back({{"name", name},
                       {"dtype", tensor.type},
                       {"shape", engine::value_of(tensor.shape)},
                       {"bytes", tensor.bytes.size()}});
  }
  return {{"name", file.name}, {"bytes", file.bytes}, {"tensors", tensors}};
}

std::string json_of(const engine::LoadedCheckpoint& checkpoint,
                    const std::vector<FileContent>& contents) {
  engine::json::object fingerprint;
  for (const auto& [name, text] : checkpoint.info.fingerprint) {
    fingerprint[name] = text;
  }
  engine::json::array files;
  for (const FileContent& content : contents) {
    files.push_back(json_of(content));
  }
  return engine::json_text({{"path", checkpoint.path},
                            {"model", checkpoint.info.model},
                            {"classes", checkpoint.info.classes},
                            {"step", value(checkpoint.info.committed)},
                            {"seed", checkpoint.info.seed},
                            {"digest", to_string(checkpoint.info.digest)},
                            {"fingerprint", fingerprint},
                            {"files", files}});
}

std::string text_of(const engine::LoadedCheckpoint& checkpoint,
                    const std::vector<FileContent>& contents) {
  const nn::CheckpointInfo& info = checkpoint.info;
  std::string text = fmt::format(
      "{}\n  model        {}, {} classes\n  step         {}\n  seed         {}\n  digest       "
      "{}\n",
      checkpoint.path, info.model, info.classes, value(info.committed), info.seed,
      to_string(info.digest));
  for (const auto& [name, content] : info.fingerprint) {
    text += fmt::format("  {:<12} {}\n", name, content);
  }
  for (const FileContent& file : contents) {
    text += fmt::format("{}: {} bytes", file.name, file.bytes);
    text += file.tensors.empty() ? "\n" : fmt::format(", {} tensors\n", file.tensors.size());
    for (const auto& [name, tensor] : file.tensors) {
      text += fmt::format("  {:<40} {} {}\n", name, tensor.type,
                          engine::json_text(engine::value_of(tensor.shape)));
    }
  }
  return text;
}

/// Loads a checkpoint and verifies the digest of its state. For a program's checkpoint, whose state
/// only the program can read, it verifies the hashes of the files.
Result<engine::LoadedCheckpoint> checked_checkpoint(const std::string& path) {
  TRY_ASSIGN(engine::LoadedCheckpoint loaded, engine::load_checkpoint(path));
  if (loaded.info.model == engine::kProgramModel) {
    const Result<nn::CheckpointInfo> checked = nn::check_files(loaded.files);
    return checked.ok() ? Result<engine::LoadedCheckpoint>(std::move(loaded))
                        : Error{checked.error().code, loaded.path + ": " + checked.error().detail};
  }
  TRY_ASSIGN(OpenCheckpoint opened, open_checkpoint(path));
  return std::move(opened.loaded);
}

}  // namespace

Result<std::string> checkpoint_argument(const std::string& command,
                                        const ParsedArguments& arguments) {
  if (arguments.positionals.size() == 1) {
    return arguments.positionals.front();
  }
  return Error{Errc::kInvalidInput,
               arguments.positionals.empty()
                   ? command + " needs CHECKPOINT (its folder, or a run directory)"
                   : command + ": unexpected argument '" + arguments.positionals[1] + "'"};
}

Result<OpenCheckpoint> open_checkpoint(const std::string& path) {
  TRY_ASSIGN(engine::LoadedCheckpoint loaded, engine::load_checkpoint(path));
  const nn::CheckpointInfo& info = loaded.info;
  if (info.model == engine::kProgramModel) {
    return Error{Errc::kInvalidInput,
                 loaded.path +
                     " belongs to a user's program, not to a built-in network; its weights are in "
                     "model.safetensors there, under the program's names"};
  }
  Result<nn::Model> model = nn::make_model(info.model, info.classes);
  if (!model.ok()) {
    return Error{model.error().code, loaded.path + ": " + model.error().detail};
  }
  Result<nn::ModelState> state = nn::decode_checkpoint(model.value(), loaded.files);
  if (!state.ok()) {
    return Error{state.error().code, loaded.path + ": " + state.error().detail};
  }
  if (nn::digest_of(state.value()) != info.digest) {
    return Error{Errc::kCorrupt, loaded.path + ": the state's digest is " +
                                     to_string(nn::digest_of(state.value())) +
                                     ", the manifest says " + to_string(info.digest)};
  }
  return OpenCheckpoint{std::move(loaded), std::move(model).value(), std::move(state).value()};
}

int inspect_checkpoint(const ParsedArguments& arguments, Context& context) {
  if (!arguments.settings.empty()) {
    const engine::Setting& first = *engine::find_setting(arguments.settings.front().first);
    return context.complain(
        "inspect: --" + engine::flag_name(first) + " needs --kernels or --memory", kExitUsage);
  }
  const Result<std::string> path = checkpoint_argument("inspect", arguments);
  if (!path.ok()) {
    return context.complain(path.error());
  }
  const Result<engine::LoadedCheckpoint> loaded = engine::load_checkpoint(path.value());
  if (!loaded.ok()) {
    return context.complain(loaded.error());
  }
  const Result<std::vector<FileContent>> contents = contents_of(loaded.value());
  if (!contents.ok()) {
    return context.complain(contents.error());
  }
  if (arguments.has("json")) {
    context.out << json_of(loaded.value(), contents.value()) << "\n";
  } else {
    context.out << text_of(loaded.value(), contents.value());
  }
  return kExitDone;
}

int digest(const ParsedArguments& arguments, Context& context) {
  const Result<std::string> path = checkpoint_argument("digest", arguments);
  if (!path.ok()) {
    return context.complain(path.error());
  }
  const Result<engine::LoadedCheckpoint> loaded = checked_checkpoint(path.value());
  if (!loaded.ok()) {
    return context.complain(loaded.error());
  }
  const nn::CheckpointInfo& info = loaded.value().info;
  if (arguments.has("json")) {
    context.out << engine::json_text({{"path", loaded.value().path},
                                      {"step", value(info.committed)},
                                      {"digest", to_string(info.digest)}})
                << "\n";
  } else {
    context.out << to_string(info.digest) << "\n";
  }
  return kExitDone;
}

}  // namespace mayfly::cli
