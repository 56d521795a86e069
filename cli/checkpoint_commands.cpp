#include <fmt/format.h>

#include "cli/commands.hpp"
#include "cli/open_checkpoint.hpp"
#include "cli/safetensors_header.hpp"
#include "engine/config/config.hpp"
#include "engine/run/json_text.hpp"
#include "engine/run/run_directory.hpp"

namespace mayfly::cli {
namespace {

using engine::json_array;
using engine::json_number;
using engine::json_string;
using engine::JsonObject;

/// A file of a checkpoint with its tensors (none for the manifest).
struct FileContent {
  std::string name;
  std::uint64_t bytes = 0;
  std::vector<TensorEntry> tensors;
};

Result<std::vector<FileContent>> contents_of(const engine::LoadedCheckpoint& checkpoint) {
  std::vector<FileContent> contents;
  for (const auto& [name, bytes] : checkpoint.files) {
    FileContent content{name, bytes.size(), {}};
    if (name != nn::kManifestFile) {
      Result<std::vector<TensorEntry>> tensors = read_safetensors_header(bytes);
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

std::string shape_text(const TensorEntry& tensor) {
  std::string text;
  for (const std::int64_t extent : tensor.shape) {
    text += (text.empty() ? "" : ", ") + std::to_string(extent);
  }
  return "[" + text + "]";
}

std::string json_of(const FileContent& file) {
  std::vector<std::string> tensors;
  for (const TensorEntry& tensor : file.tensors) {
    tensors.push_back(JsonObject()
                          .add("name", json_string(tensor.name))
                          .add("dtype", json_string(tensor.dtype))
                          .add("shape", shape_text(tensor))
                          .add("bytes", json_number(tensor.bytes))
                          .text());
  }
  return JsonObject()
      .add("name", json_string(file.name))
      .add("bytes", json_number(file.bytes))
      .add("tensors", json_array(tensors))
      .text();
}

std::string json_of(const engine::LoadedCheckpoint& checkpoint,
                    const std::vector<FileContent>& contents) {
  JsonObject fingerprint;
  for (const auto& [name, text] : checkpoint.info.fingerprint) {
    fingerprint.add(name, json_string(text));
  }
  std::vector<std::string> files;
  for (const FileContent& content : contents) {
    files.push_back(json_of(content));
  }
  return JsonObject()
      .add("path", json_string(checkpoint.path))
      .add("model", json_string(checkpoint.info.model))
      .add("classes", json_number(static_cast<std::uint64_t>(checkpoint.info.classes)))
      .add("step", json_number(value(checkpoint.info.committed)))
      .add("seed", json_number(checkpoint.info.seed))
      .add("digest", json_string(to_string(checkpoint.info.digest)))
      .add("fingerprint", fingerprint.text())
      .add("files", json_array(files))
      .text();
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
    for (const TensorEntry& tensor : file.tensors) {
      text += fmt::format("  {:<40} {} {}\n", tensor.name, tensor.dtype, shape_text(tensor));
    }
  }
  return text;
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
  Result<engine::LoadedCheckpoint> loaded = engine::load_checkpoint(path);
  if (!loaded.ok()) {
    return std::move(loaded).error();
  }
  const nn::CheckpointInfo& info = loaded.value().info;
  Result<nn::Model> model = nn::make_model(info.model, info.classes);
  if (!model.ok()) {
    return Error{model.error().code, loaded.value().path + ": " + model.error().detail};
  }
  Result<nn::ModelState> state = nn::decode_checkpoint(model.value(), loaded.value().files);
  if (!state.ok()) {
    return Error{state.error().code, loaded.value().path + ": " + state.error().detail};
  }
  if (nn::digest_of(state.value()) != info.digest) {
    return Error{Errc::kCorrupt, loaded.value().path + ": the state's digest is " +
                                     to_string(nn::digest_of(state.value())) +
                                     ", the manifest says " + to_string(info.digest)};
  }
  return OpenCheckpoint{std::move(loaded).value(), std::move(model).value(),
                        std::move(state).value()};
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
  const Result<OpenCheckpoint> opened = open_checkpoint(path.value());
  if (!opened.ok()) {
    return context.complain(opened.error());
  }
  const nn::CheckpointInfo& info = opened.value().loaded.info;
  if (arguments.has("json")) {
    context.out << JsonObject()
                       .add("path", json_string(opened.value().loaded.path))
                       .add("step", json_number(value(info.committed)))
                       .add("digest", json_string(to_string(info.digest)))
                       .text()
                << "\n";
  } else {
    context.out << to_string(info.digest) << "\n";
  }
  return kExitDone;
}

}  // namespace mayfly::cli
