#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/file.hpp"
#include "base/lock_file.hpp"
#include "datasets/dataset.hpp"
#include "tests/unit/datasets/image_files.hpp"
#include "tests/unit/datasets/temporary_folder.hpp"

namespace mayfly::datasets {
namespace {

std::string error_of(const std::string& spec) {
  const Result<DatasetPair> opened = open_dataset(spec, {});
  EXPECT_FALSE(opened.ok()) << spec;
  const std::string detail = opened.ok() ? "" : opened.error().detail;
  EXPECT_EQ(detail.find('\n'), std::string::npos) << "one line for people";
  EXPECT_NE(detail.find(spec), std::string::npos) << detail;
  return detail;
}

TEST(OpenDataset, OpensTheProceduralSetWithItsSeed) {
  OpenOptions options;
  options.seed = 3;
  const DatasetPair three = open_dataset("procedural:100", options).value();
  EXPECT_EQ(three.name, "procedural");
  EXPECT_EQ(three.train->size(), 100U);
  EXPECT_NE(three.digest, open_dataset("procedural:100", {}).value().digest);
}

TEST(OpenDataset, RefusesToScaleImagesThatLieInMemory) {
  OpenOptions options;
  options.image_size = 64;
  const Result<DatasetPair> opened = open_dataset("procedural:100", options);
  ASSERT_FALSE(opened.ok());
  EXPECT_NE(opened.error().detail.find("32x32 images; --image-size 64"), std::string::npos);
  options.image_size = 32;
  EXPECT_TRUE(open_dataset("procedural:100", options).ok());
}

TEST(OpenDataset, SaysThatNothingIsThere) {
  EXPECT_NE(error_of("/nonexistent/data").find("no such folder"), std::string::npos);
}

TEST(OpenDataset, SaysWhatAnUnknownFolderLacks) {
  const TemporaryFolder folder;
  EXPECT_NE(error_of(folder.path()).find("data_batch_1.bin"), std::string::npos);
}

TEST(OpenDataset, RefusesAFileThatIsNoTar) {
  const TemporaryFolder folder;
  write_file(folder / "data.zip", {'x'});
  EXPECT_NE(error_of(folder / "data.zip").find(".tar"), std::string::npos);
}

TEST(OpenDataset, ReportsAnIncompleteCifarFolder) {
  const TemporaryFolder folder;
  write_file(folder / "cifar-10-batches-bin/test_batch.bin", {'x'});
  const Result<DatasetPair> opened = open_dataset(folder.path(), {});
  ASSERT_FALSE(opened.ok());
  EXPECT_NE(opened.error().detail.find("data_batch_1.bin"), std::string::npos);
}

TEST(FilesOfDataset, AFileThatCannotBeLookedAtIsNotLeftOut) {
  const TemporaryFolder folder;
  write_file(folder / "train/cat/1.jpg", {'x'});
  write_file(folder / "test/cat/1.jpg", {'x'});
  EXPECT_EQ(files_of_dataset(folder.path()).value().names.size(), 2U);
  std::filesystem::create_symlink("2.jpg", folder / "train/cat/2.jpg");  // a link to itself
  const Result<DatasetFiles> files = files_of_dataset(folder.path());
  ASSERT_FALSE(files.ok());
  EXPECT_NE(files.error().detail.find("train/cat/2.jpg"), std::string::npos);
}

// Goal: a copy of a set never lacks an image or class without an error. A broken link is one, as it
// is when the set itself is opened.
TEST(FilesOfDataset, AnImageThatIsALinkToNothingIsNotLeftOut) {
  for (const char* link : {"train/cat/2.jpg", "train/dog", "test/cat/2.jpeg"}) {
    const TemporaryFolder folder;
    write_file(folder / "train/cat/1.jpg", {'x'});
    write_file(folder / "test/cat/1.jpg", {'x'});
    std::filesystem::create_symlink("nowhere", folder / "train/cat/notes");
    EXPECT_EQ(files_of_dataset(folder.path()).value().names.size(), 2U);
    std::filesystem::create_symlink("nowhere", folder / link);
    const Result<DatasetFiles> files = files_of_dataset(folder.path());
    ASSERT_FALSE(files.ok()) << link;
    EXPECT_EQ(files.error().code, Errc::kNotFound);
    EXPECT_NE(files.error().detail.find(link), std::string::npos) << files.error().detail;
  }
}

// Goal: a worker that is asked to leave while it opens a large data set ends soon, also while it
// waits for another one that opens it. It used to go on to the end, hours later if necessary.
TEST(OpenDataset, CanBeCalledOff) {
  const TemporaryFolder folder;
  Files files;
  for (const char* name : {"train/cat/1.jpg", "train/dog/1.jpg", "test/cat/1.jpg"}) {
    files[name] = jpeg(8, 8, {1, 2, 3});
  }
  write_folder(files, folder / "set");
  OpenOptions options;
  options.cache_dir = folder / "cache";
  int asked = 0;
  const auto expect_called_off = [&](int from) {
    asked = 0;
    options.is_called_off = [&asked, from] { return ++asked > from; };
    const Result<DatasetPair> opened = open_dataset(folder / "set", options);
    ASSERT_FALSE(opened.ok()) << from;
    EXPECT_EQ(opened.error().code, Errc::kAborted) << opened.error().detail;
  };
  expect_called_off(0);  // before it measures
  expect_called_off(1);  // while it decodes
  std::string lock;
  for (const std::string& name : names_in(options.cache_dir)) {
    lock = name.ends_with(".lock") ? options.cache_dir + "/" + name : lock;
    EXPECT_FALSE(name.ends_with(".bin")) << name;
  }
  const Result<LockFile> held = LockFile::take(lock);
  ASSERT_TRUE(held.ok()) << held.error().detail;
  expect_called_off(0);  // while it waits
}

}  // namespace
}  // namespace mayfly::datasets
