#include "datasets/readers.hpp"

#include <gtest/gtest.h>

#include <random>

#include "tests/unit/datasets/temporary_folder.hpp"

namespace mayfly::datasets {
namespace {

// The official formats with fewer records.
CifarFormat small(CifarFormat format) {
  format.records_per_train_file = 7;
  format.test_records = 4;
  return format;
}

std::vector<std::uint8_t> records(const CifarFormat& format, std::size_t count, unsigned start) {
  std::vector<std::uint8_t> bytes;
  for (unsigned i = start; i < start + count; ++i) {
    if (format.label_bytes == 2) {
      bytes.push_back(static_cast<std::uint8_t>(i % 20));
    }
    bytes.push_back(static_cast<std::uint8_t>(i % static_cast<unsigned>(format.classes)));
    for (unsigned pixel = 0; pixel < 3072; ++pixel) {
      bytes.push_back(static_cast<std::uint8_t>(i * 31 + pixel));
    }
  }
  return bytes;
}

void write_set(const CifarFormat& format, const std::string& folder) {
  unsigned start = 0;
  for (const std::string& file : format.train_files) {
    write_file(folder + '/' + file, records(format, format.records_per_train_file, start));
    start += 7;
  }
  write_file(folder + '/' + format.test_file, records(format, format.test_records, 1000));
}

void expect_numbered(const Dataset& set, const CifarFormat& format, unsigned start) {
  std::vector<std::uint8_t> pixels(3072);
  for (unsigned i = 0; i < set.size(); ++i) {
    EXPECT_EQ(set.label(i), (start + i) % static_cast<unsigned>(format.classes));
    EXPECT_TRUE(set.read(i, pixels).ok());
    for (const unsigned pixel : {0U, 1U, 1024U, 3071U}) {
      EXPECT_EQ(pixels[pixel], static_cast<std::uint8_t>((start + i) * 31 + pixel));
    }
  }
}

std::string error_of(const CifarFormat& format, const std::string& folder) {
  const Result<DatasetPair> opened = open_cifar(format, folder);
  EXPECT_FALSE(opened.ok());
  return opened.ok() ? std::string() : opened.error().detail;
}

TEST(Cifar, ReadsBothFormatsInOrder) {
  for (const CifarFormat& format : {small(cifar10_format()), small(cifar100_format())}) {
    const TemporaryFolder folder;
    write_set(format, folder.path());
    const Result<DatasetPair> opened = open_cifar(format, folder.path());
    ASSERT_TRUE(opened.ok()) << opened.error().detail;
    const DatasetPair& pair = opened.value();
    EXPECT_EQ(pair.name, format.name);
    EXPECT_EQ(pair.classes, format.classes);
    EXPECT_EQ(pair.class_names.size(), static_cast<std::size_t>(format.classes));
    EXPECT_EQ(pair.train->size(), 7 * format.train_files.size());
    EXPECT_EQ(pair.test->size(), 4U);
    EXPECT_EQ(pair.train->image_size(), 32);
    expect_numbered(*pair.train, format, 0);
    expect_numbered(*pair.test, format, 1000);
  }
}

TEST(Cifar, OfficialSizesAndConstants) {
  EXPECT_EQ(cifar10_format().records_per_train_file * 3073, 30'730'000U);
  EXPECT_EQ(cifar100_format().records_per_train_file * 3074, 153'700'000U);
  EXPECT_EQ(cifar10_format().mean, (std::array<float, 3>{0.4914F, 0.4822F, 0.4465F}));
  EXPECT_EQ(cifar10_format().deviation, (std::array<float, 3>{0.2470F, 0.2435F, 0.2616F}));
  EXPECT_EQ(cifar100_format().mean, (std::array<float, 3>{0.5071F, 0.4865F, 0.4409F}));
  EXPECT_EQ(cifar100_format().deviation, (std::array<float, 3>{0.2673F, 0.2564F, 0.2762F}));
}

TEST(Cifar, FindsTheOfficialSubFolder) {
  const TemporaryFolder folder;
  EXPECT_FALSE(find_cifar(cifar10_format(), folder.path()).has_value());
  write_set(small(cifar10_format()), folder / "cifar-10-batches-bin");
  EXPECT_EQ(find_cifar(cifar10_format(), folder.path()), folder / "cifar-10-batches-bin");
  EXPECT_FALSE(find_cifar(cifar100_format(), folder.path()).has_value());
}

TEST(Cifar, TakesClassNamesFromTheMetaFile) {
  const TemporaryFolder folder;
  const CifarFormat format = small(cifar10_format());
  write_set(format, folder.path());
  EXPECT_EQ(open_cifar(format, folder.path()).value().class_names[9], "truck");
  std::vector<std::uint8_t> names;
  for (char c = 'a'; c < 'k'; ++c) {
    names.insert(names.end(), {static_cast<std::uint8_t>(c), '\r', '\n'});
  }
  write_file(folder / "batches.meta.txt", names);
  EXPECT_EQ(open_cifar(format, folder.path()).value().class_names[9], "j");
}

TEST(Cifar, NamesAMissingFile) {
  const TemporaryFolder folder;
  const CifarFormat format = small(cifar10_format());
  write_set(format, folder.path());
  std::filesystem::remove(folder / "data_batch_3.bin");
  EXPECT_EQ(open_cifar(format, folder.path()).error().code, Errc::kNotFound);
  EXPECT_NE(error_of(format, folder.path()).find("data_batch_3.bin"), std::string::npos);
}

TEST(Cifar, NamesFileExpectedAndFoundBytesOfAWrongSize) {
  const CifarFormat format = small(cifar10_format());
  for (const std::size_t found : {0U, 1U, 3073U, 21'510U, 21'512U, 24'584U}) {
    const TemporaryFolder folder;
    write_set(format, folder.path());
    std::filesystem::resize_file(folder / "data_batch_2.bin", found);
    const std::string detail = error_of(format, folder.path());
    EXPECT_NE(detail.find("data_batch_2.bin"), std::string::npos) << detail;
    EXPECT_NE(detail.find("expected 21511 bytes"), std::string::npos) << detail;
    EXPECT_NE(detail.find("found " + std::to_string(found)), std::string::npos) << detail;
  }
}

TEST(Cifar, NamesFileRecordAndValueOfAWrongLabel) {
  const TemporaryFolder folder;
  const CifarFormat format = small(cifar10_format());
  write_set(format, folder.path());
  std::vector<std::uint8_t> bytes = records(format, 4, 0);
  bytes[2 * 3073] = 10;
  write_file(folder / "test_batch.bin", bytes);
  const std::string detail = error_of(format, folder.path());
  EXPECT_NE(detail.find("test_batch.bin: record 2 has label 10"), std::string::npos) << detail;
}

TEST(Cifar, RefusesAFolderInPlaceOfAFile) {
  const TemporaryFolder folder;
  const CifarFormat format = small(cifar10_format());
  write_set(format, folder.path());
  std::filesystem::remove(folder / "data_batch_1.bin");
  std::filesystem::create_directory(folder / "data_batch_1.bin");
  EXPECT_NE(error_of(format, folder.path()).find("data_batch_1.bin"), std::string::npos);
}

TEST(Cifar, DigestChangesWithTheTrainingContent) {
  const TemporaryFolder folder;
  const CifarFormat format = small(cifar10_format());
  write_set(format, folder.path());
  const Digest before = open_cifar(format, folder.path()).value().digest;
  EXPECT_EQ(open_cifar(format, folder.path()).value().digest, before);
  std::vector<std::uint8_t> bytes = records(format, 7, 0);
  bytes.back() ^= 1;
  write_file(folder / "data_batch_1.bin", bytes);
  EXPECT_NE(open_cifar(format, folder.path()).value().digest, before);
}

// Goal: no content makes the reader crash or accept a wrong label.
TEST(Cifar, SurvivesRandomContent) {
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  const CifarFormat format = small(cifar100_format());
  for (int round = 0; round < 50; ++round) {
    const TemporaryFolder folder;
    write_set(format, folder.path());
    std::vector<std::uint8_t> bytes = records(format, 7, 0);
    for (int edits = 0; edits < 30; ++edits) {
      bytes[random() % bytes.size()] = static_cast<std::uint8_t>(random());
      bytes[random() % 7 * 3074 + 1] = static_cast<std::uint8_t>(random() % 101);
    }
    bytes.resize(random() % 8 == 0 ? random() % (2 * bytes.size()) : bytes.size());
    write_file(folder / "train.bin", bytes);
    const Result<DatasetPair> opened = open_cifar(format, folder.path());
    if (opened.ok()) {
      for (std::size_t i = 0; i < opened.value().train->size(); ++i) {
        ASSERT_LT(opened.value().train->label(i), 100);
      }
    }
  }
}

}  // namespace
}  // namespace mayfly::datasets
