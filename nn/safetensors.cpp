#include "nn/safetensors.hpp"

#include <boost/json.hpp>
#include <cstring>
#include <optional>

#include "base/check.hpp"
#include "base/text.hpp"
#include "base/try_assign.hpp"

namespace mayfly::nn {
namespace {

namespace json = boost::json;

constexpr std::size_t kLengthBytes = 8;
constexpr std::size_t kDimensionsMax = 8;
constexpr const char* kMetadata = "__metadata__";

Error corrupt(const std::string& why) {
  return {Errc::kCorrupt, why};
}

std::optional<std::uint64_t> as_unsigned(const json::value* field) {
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

std::optional<std::uint64_t> element_bytes(std::string_view type) {
  if (type == "F32" || type == "I32" || type == "U32") {
    return 4;
  }
  if (type == "F64" || type == "I64" || type == "U64") {
    return 8;
  }
  if (type == "F16" || type == "BF16" || type == "I16" || type == "U16") {
    return 2;
  }
  if (type == "U8" || type == "I8" || type == "BOOL") {
    return 1;
  }
  return std::nullopt;
}

// The size in bytes of a tensor of this type and shape; nothing if the product exceeds 64 bits.
std::optional<std::uint64_t> tensor_bytes(std::string_view type,
                                          const std::vector<std::int64_t>& shape) {
  std::optional<std::uint64_t> bytes = element_bytes(type);
  for (const std::int64_t dimension : shape) {
    if (!bytes.has_value() ||
        __builtin_mul_overflow(*bytes, static_cast<std::uint64_t>(dimension), &*bytes)) {
      return std::nullopt;
    }
  }
  return bytes;
}

Result<std::vector<std::int64_t>> decode_shape(const json::value* field) {
  const json::array* numbers = field == nullptr ? nullptr : field->if_array();
  if (numbers == nullptr || numbers->size() > kDimensionsMax) {
    return corrupt("a tensor without a valid shape");
  }
  std::vector<std::int64_t> shape;
  for (const json::value& number : *numbers) {
    const std::optional<std::uint64_t> dimension = as_unsigned(&number);
    if (!dimension.has_value() || *dimension > INT64_MAX) {
      return corrupt("a shape with something else than sizes");
    }
    shape.push_back(static_cast<std::int64_t>(*dimension));
  }
  return shape;
}

Result<ByteSpan> decode_range(const json::value* field, ByteSpan data) {
  const json::array* offsets = field == nullptr ? nullptr : field->if_array();
  if (offsets == nullptr || offsets->size() != 2) {
    return corrupt("a tensor without data_offsets");
  }
  const std::optional<std::uint64_t> begin = as_unsigned(&(*offsets)[0]);
  const std::optional<std::uint64_t> end = as_unsigned(&(*offsets)[1]);
  if (!begin.has_value() || !end.has_value() || *begin > *end || *end > data.size()) {
    return corrupt("data_offsets outside the " + std::to_string(data.size()) + " data bytes");
  }
  return data.subspan(*begin, *end - *begin);
}

Result<TensorView> decode_tensor(const json::value& entry, ByteSpan data) {
  const json::object* fields = entry.if_object();
  if (fields == nullptr) {
    return corrupt("an entry that is no object");
  }
  const json::value* type = fields->if_contains("dtype");
  if (type == nullptr || !type->is_string()) {
    return corrupt("a tensor without dtype");
  }
  TRY_ASSIGN(auto shape, decode_shape(fields->if_contains("shape")));
  Result<ByteSpan> bytes = decode_range(fields->if_contains("data_offsets"), data);
  if (!bytes.ok()) {
    return std::move(bytes).error();
  }
  TensorView tensor{std::string(type->get_string()), std::move(shape), bytes.value()};
  if (tensor_bytes(tensor.type, tensor.shape) != tensor.bytes.size()) {
    return corrupt(std::to_string(tensor.bytes.size()) + " bytes do not fit " + tensor.type + ' ' +
                   shape_text(tensor.shape));
  }
  return tensor;
}

// Together the tensors must cover the data exactly once, as the format demands.
bool tiles(const std::map<std::string, TensorView>& tensors, ByteSpan data) {
  std::map<const std::byte*, std::size_t> ranges;
  for (const auto& [name, tensor] : tensors) {
    if (!tensor.bytes.empty() && !ranges.emplace(tensor.bytes.data(), tensor.bytes.size()).second) {
      return false;
    }
  }
  const std::byte* next = data.data();
  for (const auto& [begin, size] : ranges) {
    if (begin != next) {
      return false;
    }
    next += size;
  }
  return next == data.data() + data.size();
}

json::object header_entry(const TensorView& tensor, std::size_t offset) {
  json::array shape;
  for (const std::int64_t dimension : tensor.shape) {
    shape.push_back(dimension);
  }
  return {{"dtype", tensor.type},
          {"shape", std::move(shape)},
          {"data_offsets", json::array{offset, offset + tensor.bytes.size()}}};
}

}  // namespace

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (const std::int64_t dimension : shape) {
    text += (text.size() > 1 ? ", " : "") + std::to_string(dimension);
  }
  return text + ']';
}

Result<void> check_storable(const std::string& name, const std::vector<std::int64_t>& shape) {
  const auto refused = [&name](const std::string& why) {
    return Error{Errc::kInvalidInput, "tensor " + printable_line(name) + ": " + why};
  };
  if (!is_utf8(name)) {
    return refused("the name is not UTF-8, and a checkpoint needs it");
  }
  if (name == kMetadata) {
    return refused("a checkpoint has something else by this name");
  }
  if (shape.size() > kDimensionsMax) {
    return refused(std::to_string(shape.size()) + " dimensions, and a checkpoint has room for " +
                   std::to_string(kDimensionsMax));
  }
  return {};
}

Bytes encode_safetensors(const std::vector<NamedTensor>& tensors) {
  json::object header;
  header[kMetadata] = json::object{{"format", "pt"}};
  std::size_t size = 0;
  for (const NamedTensor& named : tensors) {
    ENSURE(!header.contains(named.name), "tensor names are distinct");
    ENSURE(tensor_bytes(named.tensor.type, named.tensor.shape) == named.tensor.bytes.size(),
           "a tensor's bytes fit its shape and type");
    header[named.name] = header_entry(named.tensor, size);
    size += named.tensor.bytes.size();
  }
  std::string text = json::serialize(header);
  text.resize((text.size() + 7) / 8 * 8, ' ');  // so that the tensors are aligned in the file
  ENSURE(text.size() <= kSafetensorsHeaderBytesMax, "readers refuse a larger header");
  Bytes file(kLengthBytes + text.size() + size);
  const std::uint64_t length = text.size();
  std::memcpy(file.data(), &length, kLengthBytes);
  std::memcpy(file.data() + kLengthBytes, text.data(), text.size());
  std::byte* next = file.data() + kLengthBytes + text.size();
  for (const NamedTensor& named : tensors) {
    if (!named.tensor.bytes.empty()) {
      std::memcpy(next, named.tensor.bytes.data(), named.tensor.bytes.size());
      next += named.tensor.bytes.size();
    }
  }
  return file;
}

Result<std::map<std::string, TensorView>> decode_safetensors(ByteSpan file) {
  WireReader reader(file.first(std::min(file.size(), kLengthBytes)));
  const auto length = reader.get<std::uint64_t>();
  if (reader.failed() || length > kSafetensorsHeaderBytesMax ||
      length > file.size() - kLengthBytes) {
    return corrupt("no complete header in " + std::to_string(file.size()) + " bytes");
  }
  const auto* text = reinterpret_cast<const char*>(file.data() + kLengthBytes);
  json::parse_options limits;
  limits.max_depth = 4;
  boost::system::error_code failure;
  const json::value header = json::parse({text, length}, failure, {}, limits);
  if (failure || !header.is_object()) {
    return corrupt("the header is no JSON object");
  }
  const ByteSpan data = file.subspan(kLengthBytes + length);
  std::map<std::string, TensorView> tensors;
  for (const auto& [key, entry] : header.get_object()) {
    if (key == kMetadata) {
      continue;
    }
    Result<TensorView> tensor = decode_tensor(entry, data);
    if (!tensor.ok()) {
      return corrupt(printable_line("tensor " + std::string(key) + ": " + tensor.error().detail));
    }
    tensors.emplace(key, std::move(tensor).value());
  }
  if (!tiles(tensors, data)) {
    return corrupt("the tensors do not cover the file's data exactly once");
  }
  return tensors;
}

}  // namespace mayfly::nn
