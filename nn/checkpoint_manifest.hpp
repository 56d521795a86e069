#pragma once

// manifest.json of a checkpoint as text and back; for nn/checkpoint.cpp only. Pure.

#include <boost/json.hpp>
#include <cstdint>
#include <optional>
#include <string>

#include "nn/checkpoint.hpp"

namespace mayfly::nn::manifest {

/// The file's text: the format's name and version, these fields, and the hash of all of it.
[[nodiscard]] std::string write(boost::json::object fields);

/// Parses the text and checks its hash. kCorrupt if it is truncated, modified or not a manifest,
/// kUnsupported for another version.
[[nodiscard]] Result<boost::json::value> parse(ByteSpan text);
/// kCorrupt names what is missing or wrong.
[[nodiscard]] Result<CheckpointInfo> info_from(const boost::json::value& manifest);

/// The value of a field; null, or nothing, if `value` is not an object, has no such field, or the
/// field has another type.
[[nodiscard]] const boost::json::value* field_of(const boost::json::value& object,
                                                 const char* name);
[[nodiscard]] std::optional<std::uint64_t> number_of(const boost::json::value& object,
                                                     const char* name);
[[nodiscard]] std::optional<std::string> text_of(const boost::json::value& object,
                                                 const char* name);

}  // namespace mayfly::nn::manifest
