#include "datasets/readers.hpp"

#include <filesystem>
#include <sstream>

#include "base/file.hpp"
#include "base/try_assign.hpp"
#include "datasets/record_set.hpp"

namespace mayfly::datasets {
namespace {

constexpr std::size_t kNamesBytesMax = std::size_t{1} << 16;

std::string join(const std::string& folder, const std::string& file) {
  return (std::filesystem::path(folder) / file).string();
}

bool has_any_file(const CifarFormat& format, const std::string& folder) {
  std::error_code ignored;
  for (const std::string& file : format.train_files) {
    if (std::filesystem::exists(join(folder, file), ignored)) {
      return true;
    }
  }
  return std::filesystem::exists(join(folder, format.test_file), ignored);
}

Result<void> check_labels(const CifarFormat& format, const RecordLayout& layout,
                          const std::string& path, std::span<const std::uint8_t> records) {
  const std::size_t count = records.size() / layout.record_bytes();
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint8_t label = records[i * layout.record_bytes() + layout.label_bytes - 1];
    if (label >= format.classes) {
      return Error{Errc::kCorrupt, path + ": record " + std::to_string(i) + " has label " +
                                       std::to_string(label) + ", expected 0 to " +
                                       std::to_string(format.classes - 1)};
    }
  }
  return {};
}

Result<RecordChunk> open_chunk(const CifarFormat& format, const RecordLayout& layout,
                               const std::string& path, std::size_t record_count) {
  TRY_ASSIGN(std::shared_ptr<const MappedFile> file, MappedFile::open(path));
  const std::span<const std::uint8_t> bytes = file->bytes();
  const std::size_t expected = record_count * layout.record_bytes();
  if (bytes.size() != expected) {
    return Error{Errc::kCorrupt, path + ": expected " + std::to_string(expected) + " bytes (" +
                                     std::to_string(record_count) + " records of " +
                                     std::to_string(layout.record_bytes()) + "), found " +
                                     std::to_string(bytes.size())};
  }
  TRY(check_labels(format, layout, path, bytes));
  return RecordChunk{file, bytes};
}

// The class names, one per line. If the file is missing or has another number of lines, the names
// are the class numbers.
std::vector<std::string> read_class_names(const CifarFormat& format, const std::string& folder) {
  std::vector<std::string> names;
  const Result<std::string> text = read_text_file(join(folder, format.names_file), kNamesBytesMax);
  std::istringstream lines(text.ok() ? text.value() : std::string());
  for (std::string line; std::getline(lines, line);) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) {
      line.pop_back();
    }
    if (!line.empty()) {
      names.push_back(line);
    }
  }
  const auto classes = static_cast<std::size_t>(format.classes);
  if (names.size() != classes) {
    names.clear();
    for (std::size_t i = 0; i < classes; ++i) {
      names.push_back("class " + std::to_string(i));
    }
    return format.name == "cifar10" ? cifar10_class_names() : names;
  }
  return names;
}

}  // namespace

const CifarFormat& cifar10_format() {
  static const CifarFormat format = {
      .name = "cifar10",
      .folder = "cifar-10-batches-bin",
      .classes = 10,
      .label_bytes = 1,
      .train_files = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                      "data_batch_4.bin", "data_batch_5.bin"},
      .records_per_train_file = 10'000,
      .test_file = "test_batch.bin",
      .test_records = 10'000,
      .names_file = "batches.meta.txt",
      .mean = {0.4914F, 0.4822F, 0.4465F},
      .deviation = {0.2470F, 0.2435F, 0.2616F}};
  return format;
}

const CifarFormat& cifar100_format() {
  static const CifarFormat format = {.name = "cifar100",
                                     .folder = "cifar-100-binary",
                                     .classes = 100,
                                     .label_bytes = 2,
                                     .train_files = {"train.bin"},
                                     .records_per_train_file = 50'000,
                                     .test_file = "test.bin",
                                     .test_records = 10'000,
                                     .names_file = "fine_label_names.txt",
                                     .mean = {0.5071F, 0.4865F, 0.4409F},
                                     .deviation = {0.2673F, 0.2564F, 0.2762F}};
  return format;
}

const std::vector<std::string>& cifar10_class_names() {
  static const std::vector<std::string> names = {
      "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"};
  return names;
}

std::optional<std::string> find_cifar(const CifarFormat& format, const std::string& folder) {
  for (const std::string& place : {folder, join(folder, format.folder)}) {
    if (has_any_file(format, place)) {
      return place;
    }
  }
  return std::nullopt;
}

Result<DatasetPair> open_cifar(const CifarFormat& format, const std::string& folder) {
  const RecordLayout layout{.image_size = 32, .label_bytes = format.label_bytes};
  std::vector<RecordChunk> train;
  Digester digester;
  for (const std::string& file : format.train_files) {
    TRY_ASSIGN(RecordChunk chunk,
               open_chunk(format, layout, join(folder, file), format.records_per_train_file));
    digester.add(std::as_bytes(chunk.records));
    train.push_back(std::move(chunk));
  }
  TRY_ASSIGN(RecordChunk test,
             open_chunk(format, layout, join(folder, format.test_file), format.test_records));
  DatasetPair pair;
  pair.name = format.name;
  pair.classes = format.classes;
  pair.class_names = read_class_names(format, folder);
  pair.mean = format.mean;
  pair.deviation = format.deviation;
  pair.train = std::make_shared<RecordSet>(layout, std::move(train));
  pair.test_digest = digest_of(std::as_bytes(test.records));
  pair.test = std::make_shared<RecordSet>(layout, std::vector{std::move(test)});
  pair.digest = digester.finish();
  return pair;
}

}  // namespace mayfly::datasets
