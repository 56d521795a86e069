#include "library/api_tensors.hpp"

#include <algorithm>
#include <iterator>
#include <set>
#include <string_view>

#include "base/text.hpp"
#include "base/try_assign.hpp"
#include "nn/safetensors.hpp"

namespace mayfly::library {
namespace {

using engine::ProgramTensor;

struct TypeFacts {
  const char* name;
  std::size_t bytes;
};
constexpr TypeFacts kTypes[] = {{"F32", 4}, {"F64", 8}, {"F16", 2}, {"BF16", 2}, {"I64", 8},
                                {"I32", 4}, {"I16", 2}, {"I8", 1},  {"U8", 1},   {"BOOL", 1}};
constexpr std::uint64_t kElementsMax = std::uint64_t{1} << 40;

Result<ProgramTensor> tensor_of(const mf_tensor& given) {
  if (given.name == nullptr || *given.name == '\0') {
    return Error{Errc::kInvalidInput, "a tensor has no name"};
  }
  const auto type = static_cast<std::size_t>(given.type);
  if (type >= std::size(kTypes)) {
    return Error{Errc::kInvalidInput, std::string("tensor ") + given.name + ": unknown type"};
  }
  ProgramTensor tensor;
  tensor.name = given.name;
  tensor.type = kTypes[type].name;
  std::uint64_t elements = 1;
  for (std::size_t i = 0; i < given.dimensions; ++i) {
    tensor.shape.push_back(given.shape[i]);
    const auto size = static_cast<std::uint64_t>(given.shape[i]);
    if (given.shape[i] < 0 || (size > 0 && elements > kElementsMax / size)) {
      return Error{Errc::kInvalidInput, tensor.name + ": the shape is too large"};
    }
    elements *= size;
  }
  TRY(nn::check_storable(tensor.name, tensor.shape));
  tensor.elements = elements;
  tensor.bytes = elements * kTypes[type].bytes;
  tensor.data = static_cast<std::byte*>(given.data);
  if (tensor.data == nullptr && tensor.bytes > 0) {
    return Error{Errc::kInvalidInput, "tensor " + tensor.name + " has no memory"};
  }
  return tensor;
}

}  // namespace

Result<std::vector<ProgramTensor>> tensors_of(const mf_tensor* given, std::size_t count) {
  std::vector<ProgramTensor> tensors;
  for (std::size_t i = 0; i < count; ++i) {
    Result<ProgramTensor> tensor = tensor_of(given[i]);
    if (!tensor.ok()) {
      return tensor.error();
    }
    tensors.push_back(std::move(tensor).value());
  }
  return tensors;
}

Result<std::vector<std::string>> names_of(const char* const* given, std::size_t count) {
  std::vector<std::string> names(given, given + count);
  const auto wrong = std::ranges::find_if_not(names, is_utf8);
  if (wrong != names.end()) {
    return Error{Errc::kInvalidInput,
                 "the name of a metric or a sum must be UTF-8: " + printable(*wrong)};
  }
  std::set<std::string_view> known;
  for (const std::string& name : names) {
    if (!known.insert(name).second) {
      return Error{Errc::kInvalidInput, "two metrics or two sums have the name " + name};
    }
  }
  return names;
}

mf_type type_named(std::string_view name) {
  for (std::size_t i = 0; i < std::size(kTypes); ++i) {
    if (name == kTypes[i].name) {
      return static_cast<mf_type>(i);
    }
  }
  return MF_U8;  // other types are passed as bytes, which the program can interpret
}

}  // namespace mayfly::library
