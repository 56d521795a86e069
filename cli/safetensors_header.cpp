#include "cli/safetensors_header.hpp"

#include <algorithm>
#include <boost/json.hpp>

namespace mayfly::cli {
namespace {

namespace json = boost::json;

struct Located {
  std::uint64_t begin = 0;
  TensorEntry entry;
};

/// The format: {"NAME": {"dtype": "F32", "shape": [..], "data_offsets": [begin, end]}, ...}.
Located read_entry(const json::key_value_pair& field) {
  const json::object& object = field.value().as_object();
  Located located;
  located.entry.name = std::string(field.key());
  located.entry.dtype = std::string(object.at("dtype").as_string());
  for (const json::value& extent : object.at("shape").as_array()) {
    located.entry.shape.push_back(extent.to_number<std::int64_t>());
  }
  const json::array& offsets = object.at("data_offsets").as_array();
  located.begin = offsets.at(0).to_number<std::uint64_t>();
  located.entry.bytes = offsets.at(1).to_number<std::uint64_t>() - located.begin;
  return located;
}

std::vector<TensorEntry> read_entries(std::string_view text) {
  std::vector<Located> found;
  const json::value header = json::parse(json::string_view(text.data(), text.size()));
  for (const auto& field : header.as_object()) {
    if (field.key() != "__metadata__") {
      found.push_back(read_entry(field));
    }
  }
  std::sort(found.begin(), found.end(),
            [](const Located& a, const Located& b) { return a.begin < b.begin; });
  std::vector<TensorEntry> entries;
  for (Located& located : found) {
    entries.push_back(std::move(located.entry));
  }
  return entries;
}

}  // namespace

Result<std::vector<TensorEntry>> read_safetensors_header(ByteSpan file) {
  WireReader reader(file);
  const auto size = reader.get<std::uint64_t>();
  if (reader.failed() || size > file.size() - sizeof(size)) {
    return Error{Errc::kCorrupt, "not a safetensors file: the header is longer than the file"};
  }
  const auto* text = reinterpret_cast<const char*>(file.data()) + sizeof(size);
  try {
    return read_entries(std::string_view(text, size));
  } catch (const std::exception&) {  // the parser's and its checked accesses'
    return Error{Errc::kCorrupt, "not a safetensors file: the header does not describe tensors"};
  }
}

}  // namespace mayfly::cli
