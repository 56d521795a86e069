#include "cloud_hooks/core/machine_gpu.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

namespace mayfly::cloud_hooks {
namespace {

struct KnownGpu {
  std::string_view key;
  std::string_view name;
  int capability;
};

// Families of EC2: the part of a machine type before the point.
constexpr std::array<KnownGpu, 19> kEc2Families = {{
    {"p2", "NVIDIA K80", 37},        {"g3", "NVIDIA M60", 52},    {"g3s", "NVIDIA M60", 52},
    {"p3", "NVIDIA V100", 70},       {"p3dn", "NVIDIA V100", 70}, {"g4dn", "NVIDIA T4", 75},
    {"g5g", "NVIDIA T4G", 75},       {"p4d", "NVIDIA A100", 80},  {"p4de", "NVIDIA A100", 80},
    {"g5", "NVIDIA A10G", 86},       {"g6", "NVIDIA L4", 89},     {"g6f", "NVIDIA L4", 89},
    {"gr6", "NVIDIA L4", 89},        {"gr6f", "NVIDIA L4", 89},   {"g6e", "NVIDIA L40S", 89},
    {"p5", "NVIDIA H100", 90},       {"p5e", "NVIDIA H200", 90},  {"p5en", "NVIDIA H200", 90},
    {"p6-b200", "NVIDIA B200", 100},
}};

// Machine types of Compute Engine that come with GPUs: how their names begin; the longest first.
constexpr std::array<KnownGpu, 5> kGceTypes = {{
    {"a3-ultragpu-", "NVIDIA H200", 90},
    {"a3-", "NVIDIA H100", 90},
    {"a2-", "NVIDIA A100", 80},
    {"a4-highgpu-", "NVIDIA B200", 100},
    {"g2-standard-", "NVIDIA L4", 89},
}};

// GPUs that Compute Engine adds to a machine: how their names begin.
constexpr std::array<KnownGpu, 11> kGceAccelerators = {{
    {"nvidia-tesla-k80", "NVIDIA K80", 37},
    {"nvidia-tesla-p4", "NVIDIA P4", 61},
    {"nvidia-tesla-p100", "NVIDIA P100", 60},
    {"nvidia-tesla-v100", "NVIDIA V100", 70},
    {"nvidia-tesla-t4", "NVIDIA T4", 75},
    {"nvidia-tesla-a100", "NVIDIA A100", 80},
    {"nvidia-a100-", "NVIDIA A100", 80},
    {"nvidia-l4", "NVIDIA L4", 89},
    {"nvidia-h100-", "NVIDIA H100", 90},
    {"nvidia-h200-", "NVIDIA H200", 90},
    {"nvidia-b200", "NVIDIA B200", 100},
}};

// The letters with which EC2's families without an NVIDIA GPU begin; the number of a generation
// follows.
constexpr std::array<std::string_view, 20> kEc2Letters = {
    "a",  "c", "d", "dl", "f",   "h", "hpc", "i", "im", "inf",
    "is", "m", "r", "t",  "trn", "u", "vt",  "x", "z",  "mac"};
constexpr std::array<std::string_view, 24> kGceSeries = {
    "c2", "c2d", "c3", "c3d", "c4", "c4a", "c4d", "e2",  "f1",  "g1", "h3", "m1",
    "m2", "m3",  "m4", "n1",  "n2", "n2d", "n4",  "t2a", "t2d", "x4", "z3", "h4d"};

template <std::size_t Count, typename Matches>
std::optional<MachineGpu> find(const std::array<KnownGpu, Count>& table, Matches matches) {
  const auto* const known = std::find_if(table.begin(), table.end(),
                                         [&](const KnownGpu& gpu) { return matches(gpu.key); });
  return known == table.end()
             ? std::nullopt
             : std::optional<MachineGpu>({std::string(known->name), known->capability});
}

template <std::size_t Count>
bool contains(const std::array<std::string_view, Count>& list, std::string_view text) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

std::optional<MachineGpu> without_gpu(bool is_known) {
  return is_known ? std::optional<MachineGpu>(MachineGpu{}) : std::nullopt;
}

std::optional<MachineGpu> gpu_of_ec2(std::string_view family) {
  const auto known = find(kEc2Families, [&](std::string_view key) { return key == family; });
  if (known) {
    return known;
  }
  const auto* const digit = std::find_if(family.begin(), family.end(), [](unsigned char c) {
    return std::isdigit(c) != 0 || c == '-';
  });
  const std::string_view letters =
      family.substr(0, static_cast<std::size_t>(digit - family.begin()));
  return without_gpu(digit != family.end() && (contains(kEc2Letters, letters) || family == "g4ad"));
}

}  // namespace

std::optional<MachineGpu> gpu_of_machine(const std::string& machine_type) {
  const std::string_view text = machine_type;
  if (const std::size_t plus = text.find('+'); plus != std::string_view::npos) {
    const std::string_view added = text.substr(plus + 1);
    return find(kGceAccelerators, [&](std::string_view key) { return added.starts_with(key); });
  }
  if (const std::size_t point = text.find('.'); point != std::string_view::npos) {
    return gpu_of_ec2(text.substr(0, point));
  }
  const auto known = find(kGceTypes, [&](std::string_view key) { return text.starts_with(key); });
  const std::size_t dash = text.find('-');
  return known ? known
               : without_gpu(dash != std::string_view::npos &&
                             contains(kGceSeries, text.substr(0, dash)));
}

}  // namespace mayfly::cloud_hooks
