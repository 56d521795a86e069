#include "nn/checkpoint_manifest.hpp"

#include <algorithm>
#include <array>
#include <string_view>

namespace mayfly::nn::manifest {

namespace json = boost::json;

namespace {

constexpr const char* kFormat = "mayfly-checkpoint";
constexpr std::uint64_t kVersion = 1;
constexpr std::size_t kManifestBytesMax = std::size_t{1} << 20;
constexpr const char* kOwnHash = "manifest_xxh3";  // the last field: of all that precedes it

Error corrupt(const std::string& why) {
  return {Errc::kCorrupt, std::string(kManifestFile) + ": " + why};
}

std::optional<Digest> parse_digest(const std::string& hex) {
  Digest digest;
  if (hex.size() != 32) {
    return std::nullopt;
  }
  for (std::size_t i = 0; i < 32; ++i) {
    const char c = hex[i];
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) {
      return std::nullopt;
    }
    std::uint64_t& half = i < 16 ? digest.high : digest.low;
    half = half << 4 | static_cast<std::uint64_t>(digit);
  }
  return digest;
}

/// The end of a manifest that begins with `text`: its hash, in a format without optional bytes, so
/// that any modified byte is detected.
std::string manifest_end(std::string_view text) {
  return std::string(",\"") + kOwnHash + "\":\"" +
         to_string(mayfly::digest_of(std::as_bytes(std::span(text)))) + "\"}\n";
}

/// A manifest of an earlier build has no hash. A flipped bit cannot make a manifest look like one
/// of these: a damaged field name would be an unknown field, which is refused.
Result<void> check_own_hash(std::string_view text, const json::object& fields) {
  if (!fields.contains(kOwnHash)) {
    constexpr std::array<std::string_view, 9> kEarlier = {
        "format", "version", "model", "classes", "step", "seed", "digest", "files", "fingerprint"};
    for (const auto& [name, ignored] : fields) {
      if (std::find(kEarlier.begin(), kEarlier.end(), std::string_view(name)) == kEarlier.end()) {
        return corrupt("holds the unknown field " + json::serialize(name));
      }
    }
    return {};
  }
  const std::size_t covered = text.size() - std::min(text.size(), manifest_end("").size());
  if (text.substr(covered) != manifest_end(text.substr(0, covered))) {
    return corrupt("was changed after it was written: its hash does not fit");
  }
  return {};
}

}  // namespace

const json::value* field_of(const json::value& object, const char* name) {
  const json::object* fields = object.if_object();
  return fields == nullptr ? nullptr : fields->if_contains(name);
}

std::optional<std::uint64_t> number_of(const json::value& object, const char* name) {
  const json::value* field = field_of(object, name);
  if (field == nullptr) {
    return std::nullopt;
  }
  if (const std::uint64_t* number = field->if_uint64()) {
    return *number;
  }
  if (const std::int64_t* number = field->if_int64(); number != nullptr && *number >= 0) {
    return static_cast<std::uint64_t>(*number);
  }
  return std::nullopt;
}

std::optional<std::string> text_of(const json::value& object, const char* name) {
  const json::value* field = field_of(object, name);
  if (field == nullptr || !field->is_string()) {
    return std::nullopt;
  }
  return std::string(field->get_string());
}

std::string write(json::object fields) {
  json::object whole = {{"format", kFormat}, {"version", kVersion}};
  for (json::key_value_pair& field : fields) {
    whole[field.key()] = std::move(field.value());
  }
  std::string text = json::serialize(whole);
  text.pop_back();  // the brace
  return text + manifest_end(text);
}

Result<json::value> parse(ByteSpan manifest) {
  if (manifest.size() > kManifestBytesMax) {
    return corrupt("larger than 1 MiB");
  }
  json::parse_options limits;
  limits.max_depth = 4;
  boost::system::error_code failure;
  const std::string_view text(reinterpret_cast<const char*>(manifest.data()), manifest.size());
  json::value parsed = json::parse({text.data(), text.size()}, failure, {}, limits);
  if (failure) {
    return corrupt("not JSON (" + failure.message() + "); torn?");
  }
  if (text_of(parsed, "format") != kFormat) {
    return corrupt("not the manifest of a Mayfly checkpoint");
  }
  if (const auto version = number_of(parsed, "version"); version != kVersion) {
    return Error{Errc::kUnsupported,
                 std::string(kManifestFile) + ": format version " +
                     (version ? std::to_string(*version) : std::string("missing")) +
                     "; this build reads version " + std::to_string(kVersion)};
  }
  TRY(check_own_hash(text, parsed.get_object()));
  return parsed;
}

Result<CheckpointInfo> info_from(const json::value& manifest) {
  const auto model = text_of(manifest, "model");
  const auto classes = number_of(manifest, "classes");
  const auto step = number_of(manifest, "step");
  const auto seed = number_of(manifest, "seed");
  const auto digest = parse_digest(text_of(manifest, "digest").value_or(""));
  if (!model || !classes || *classes > INT32_MAX || !step || !seed || !digest) {
    return corrupt("model, classes, step, seed or digest is missing or wrong");
  }
  const json::value* fingerprint = field_of(manifest, "fingerprint");
  if (fingerprint == nullptr || !fingerprint->is_object()) {
    return corrupt("the fingerprint is missing");
  }
  CheckpointInfo info{*model, static_cast<int>(*classes), Step{*step}, *seed, *digest, {}};
  for (const auto& [key, text] : fingerprint->get_object()) {
    if (!text.is_string()) {
      return corrupt("the fingerprint holds something else than text");
    }
    info.fingerprint.emplace_back(key, text.get_string());
  }
  return info;
}

}  // namespace mayfly::nn::manifest
