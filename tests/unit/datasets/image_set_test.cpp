
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/file.hpp"
#include "datasets/encoded_images.hpp"
#include "datasets/readers.hpp"
#include "tests/unit/datasets/image_files.hpp"
#include "tests/unit/datasets/temporary_folder.hpp"

namespace mayfly::datasets {
namespace {

// Two classes; the red value of an image identifies it.
Files good_files(int side = 8) {
  Files files;
  std::uint8_t red = 0;
  for (const char* name : {"train/cat/a.jpg", "train/cat/b.jpeg", "train/dog/a.JPG",
                           "test/cat/x.jpg", "test/dog/x.jpg"}) {
    files[name] = jpeg(side, side, {red = static_cast<std::uint8_t>(red + 40), 100, 200});
  }
  files["train/cat/readme.txt"] = {'h', 'i'};
  files["train/cat/._a.jpg"] = {'n', 'o'};
  return files;
}

void expect_good(const Result<DatasetPair>& opened) {
  ASSERT_TRUE(opened.ok()) << opened.error().detail;
  const DatasetPair& pair = opened.value();
  EXPECT_EQ(pair.name, "folder");
  EXPECT_EQ(pair.class_names, (std::vector<std::string>{"cat", "dog"}));
  ASSERT_EQ(pair.train->size(), 3U);
  ASSERT_EQ(pair.test->size(), 2U);
  EXPECT_EQ(pair.train->image_size(), 8);
  std::vector<std::uint8_t> pixels(3 * 64);
  const auto check = [&](const Dataset& set, std::size_t index, int red, int label) {
    EXPECT_TRUE(set.read(index, pixels).ok());
    EXPECT_NEAR(pixels[0], red, 3);
    EXPECT_NEAR(pixels[63], red, 3);
    EXPECT_NEAR(pixels[64], 100, 3);
    EXPECT_NEAR(pixels[191], 200, 3);
    EXPECT_EQ(set.label(index), label);
  };
  check(*pair.train, 0, 40, 0);
  check(*pair.train, 1, 80, 0);
  check(*pair.train, 2, 120, 1);
  check(*pair.test, 0, 160, 0);
  check(*pair.test, 1, 200, 1);
  EXPECT_NEAR(pair.mean[0], 80.0 / 255, 0.01);
  EXPECT_NEAR(pair.deviation[0], std::sqrt(3200.0 / 3) / 255, 0.01);
  EXPECT_EQ(pair.left_out.count, 0U);
}

std::string error_of(const Result<DatasetPair>& opened) {
  EXPECT_FALSE(opened.ok());
  return opened.ok() ? std::string() : opened.error().detail;
}

TEST(ImageSet, ReadsAFolderSortedByClassAndName) {
  const TemporaryFolder folder;
  write_folder(good_files(), folder.path());
  expect_good(open_image_folder(folder.path(), {}));
}

TEST(ImageSet, ReadsEveryKindOfTarWithAndWithoutATopFolder) {
  const TemporaryFolder folder;
  for (const char* name : {"a.tar", "a.tar.gz", "a.tar.xz"}) {
    for (const char* prefix : {"", "./", "top/", "./top/"}) {
      write_tar(good_files(), folder / name, prefix);
      expect_good(open_image_tar(folder / name, {}));
    }
  }
}

TEST(ImageSet, FolderAndTarHaveTheSameDigest) {
  const TemporaryFolder folder;
  write_folder(good_files(), folder / "set");
  write_tar(good_files(), folder / "set.tar");
  const DatasetPair set = open_image_folder(folder / "set", {}).value();
  const Digest digest = set.digest;
  EXPECT_EQ(digest, open_image_tar(folder / "set.tar", {}).value().digest);
  EXPECT_EQ(set.test_digest, open_image_tar(folder / "set.tar", {}).value().test_digest);
  Files other = good_files();
  other["train/dog/a.JPG"] = jpeg(8, 8, {1, 2, 3});
  write_tar(other, folder / "other.tar");
  EXPECT_NE(digest, open_image_tar(folder / "other.tar", {}).value().digest);
  EXPECT_EQ(set.test_digest, open_image_tar(folder / "other.tar", {}).value().test_digest);
  other["test/dog/other.jpg"] = jpeg(8, 8, {3, 2, 1});
  write_tar(other, folder / "tested.tar");
  EXPECT_NE(set.test_digest, open_image_tar(folder / "tested.tar", {}).value().test_digest);
}

TEST(ImageSet, KnowsCifar10ByItsClasses) {
  Files files;
  for (const std::string& name : cifar10_class_names()) {
    files["train/" + name + "/1.jpg"] = jpeg(32, 32, {9, 9, 9});
  }
  files["test/cat/1.jpg"] = jpeg(32, 32, {9, 9, 9});
  const TemporaryFolder folder;
  write_folder(files, folder.path());
  const DatasetPair pair = open_image_folder(folder.path(), {}).value();
  EXPECT_EQ(pair.name, "cifar10");
  EXPECT_EQ(pair.mean, cifar10_format().mean);
  EXPECT_EQ(pair.deviation, cifar10_format().deviation);
  EXPECT_EQ(pair.class_names, cifar10_class_names());
}

TEST(ImageSet, NamesACorruptImage) {
  const File good = jpeg(8, 8, {1, 2, 3});
  const std::vector<File> bad = {{},
                                 {'n', 'o', 't', ' ', 'a', ' ', 'j', 'p', 'e', 'g'},
                                 File(good.begin(), good.begin() + 20),
                                 File(good.begin(), good.end() - 10)};
  for (const File& content : bad) {
    Files files = good_files();
    files["train/cat/b.jpeg"] = content;
    const TemporaryFolder folder;
    write_folder(files, folder / "set");
    write_tar(files, folder / "set.tar");
    for (const auto& opened :
         {open_image_folder(folder / "set", {}), open_image_tar(folder / "set.tar", {})}) {
      ASSERT_FALSE(opened.ok()) << content.size();
      EXPECT_EQ(opened.error().code, Errc::kCorrupt);
      EXPECT_NE(error_of(opened).find("train/cat/b.jpeg"), std::string::npos) << error_of(opened);
    }
  }
}

TEST(ImageSet, SkipsAndCountsCorruptImagesWhenAsked) {
  Files files = good_files();
  files["train/cat/b.jpeg"] = {'x'};
  files["test/cat/bad.jpg"] = {};
  const TemporaryFolder folder;
  write_tar(files, folder / "set.tar");
  OpenOptions options;
  options.skip_corrupt = true;
  options.cache_dir = folder / "cache";
  for (int round = 0; round < 2; ++round) {  // decoded, then from the cache
    const DatasetPair pair = open_image_tar(folder / "set.tar", options).value();
    EXPECT_EQ(pair.left_out.sentence(),
              "2 unusable images are left out: train/cat/b.jpeg, test/cat/bad.jpg");
    EXPECT_EQ(pair.train->size(), 2U);
    EXPECT_EQ(pair.test->size(), 2U);
    EXPECT_EQ(pair.train->label(1), 1);
  }
  options.skip_corrupt = false;  // the cache of the other mode must not hide the error
  EXPECT_NE(error_of(open_image_tar(folder / "set.tar", options)).find("b.jpeg"),
            std::string::npos);
}

TEST(ImageSet, KeepsLabelsWhenAClassLosesAllItsImages) {
  Files files = good_files();
  files["train/cat/a.jpg"] = {'x'};
  files["train/cat/b.jpeg"] = {'x'};
  const TemporaryFolder folder;
  write_folder(files, folder.path());
  OpenOptions options;
  options.skip_corrupt = true;
  const DatasetPair pair = open_image_folder(folder.path(), options).value();
  EXPECT_EQ(pair.classes, 2);
  EXPECT_EQ(pair.train->label(0), 1);
  EXPECT_EQ(pair.test->label(0), 0);
}

// Goal: equal small squares are decoded at once; anything else is decoded when it is read.
TEST(ImageSet, ImagesOfOtherSizesStayEncoded) {
  const auto opened = [](int side, const File& other, int image_size) {
    Files files = good_files(side);
    files["train/dog/a.JPG"] = other;
    const TemporaryFolder folder;
    write_folder(files, folder.path());
    OpenOptions options;
    options.image_size = image_size;
    const DatasetPair pair = open_image_folder(folder.path(), options).value();
    return std::pair(pair.encoded, pair.train->image_size());
  };
  EXPECT_EQ(opened(8, jpeg(8, 8, {}), 0), std::pair(false, 8));
  EXPECT_EQ(opened(64, jpeg(64, 64, {}), 0), std::pair(false, 64));
  EXPECT_EQ(opened(96, jpeg(96, 96, {}), 96), std::pair(false, 96));
  EXPECT_EQ(opened(96, jpeg(96, 96, {}), 0), std::pair(true, 224));
  EXPECT_EQ(opened(8, jpeg(8, 9, {}), 0), std::pair(true, 224));
  EXPECT_EQ(opened(8, jpeg(16, 16, {}), 0), std::pair(true, 224));
  EXPECT_EQ(opened(8, jpeg(8, 8, {}), 32), std::pair(true, 32));
}

TEST(ImageSet, SaysWhatAFolderLacks) {
  const auto detail_without = [](const std::string& part) {
    Files files = good_files();
    std::erase_if(files, [&](const auto& file) { return file.first.starts_with(part); });
    const TemporaryFolder folder;
    write_folder(files, folder.path());
    std::filesystem::create_directories(folder / part);
    return error_of(open_image_folder(folder.path(), {}));
  };
  EXPECT_NE(detail_without("train").find("no training images"), std::string::npos);
  EXPECT_NE(detail_without("test").find("no test images"), std::string::npos);
  EXPECT_NE(detail_without("train/dog").find("class dog has test images"), std::string::npos);
  const TemporaryFolder empty;
  EXPECT_NE(error_of(open_image_folder(empty.path(), {})).find("train/CLASS"), std::string::npos);
}

// Goal: a broken link to an image or a class is an error. If the image or class were left out,
// other images could get the wrong labels.
TEST(ImageSet, ALinkToNothingIsNamed) {
  namespace fs = std::filesystem;
  for (const std::string link : {"train/cat/link.jpg", "train/ant", "test/dog/link.jpeg"}) {
    const TemporaryFolder folder;
    write_folder(good_files(), folder.path());
    write_file(folder / "target/x.jpg", jpeg(8, 8, {1, 2, 3}));
    const bool is_class = link == "train/ant";
    fs::create_symlink(folder / (is_class ? "target" : "target/x.jpg"), folder / link);
    ASSERT_TRUE(open_image_folder(folder.path(), {}).ok()) << link;
    fs::remove_all(folder / "target");
    OpenOptions options;
    options.skip_corrupt = true;
    const std::string refused = error_of(open_image_folder(folder.path(), options));
    EXPECT_NE(refused.find(link + " is a link without a target"), std::string::npos) << refused;
  }
}

TEST(ImageSet, ALinkInATarIsNamed) {
  namespace fs = std::filesystem;
  for (const std::string link : {"train/cat/soft.jpg", "train/cat/hard.jpg", "train/ant"}) {
    const TemporaryFolder folder;
    write_folder(good_files(), folder / "set");
    if (link == "train/cat/hard.jpg") {
      fs::create_hard_link(folder / "set/train/cat/a.jpg", folder / ("set/" + link));
    } else {
      fs::create_symlink(link == "train/ant" ? "dog" : "a.jpg", folder / ("set/" + link));
    }
    const std::string pack = "tar -cf " + (folder / "a.tar") + " -C " + (folder / "set") + " ";
    // If a file has two names, tar packs the first one as a file and the other one as a link.
    ASSERT_EQ(std::system((pack + "train/cat/a.jpg train/dog test " + link).c_str()), 0);
    const std::string refused = error_of(open_image_tar(folder / "a.tar", {}));
    EXPECT_NE(refused.find(link + " is a link"), std::string::npos) << refused;
    EXPECT_NE(refused.find("--hard-dereference"), std::string::npos);
    const std::string whole = pack + "--dereference --hard-dereference train test";
    ASSERT_EQ(std::system(whole.c_str()), 0);
    EXPECT_TRUE(open_image_tar(folder / "a.tar", {}).ok()) << link;
  }
}

TEST(ImageSet, KnowsWhatLinkMayStandForImages) {
  for (const char* name : {"train", "./test", "top/train", "train/cat", "top/test/cat",
                           "train/cat/1.jpg", "top/train/cat/1.jpg"}) {
    EXPECT_TRUE(may_stand_for_images(name)) << name;
  }
  for (const char* name :
       {"", "top", "latest/notes", "train/cat/notes.txt", "a/b/train/cat", "train/cat/.1.jpg"}) {
    EXPECT_FALSE(may_stand_for_images(name)) << name;
  }
}

TEST(ImageSet, RefusesATornTar) {
  const TemporaryFolder folder;
  for (const char* name : {"a.tar", "a.tar.gz", "a.tar.xz"}) {
    write_tar(good_files(), folder / name);
    const auto size = std::filesystem::file_size(folder / name);
    for (const std::uintmax_t cut : {std::uintmax_t{1}, std::uintmax_t{100}, size / 2}) {
      std::filesystem::resize_file(folder / name, std::min(cut, size));
      EXPECT_NE(error_of(open_image_tar(folder / name, {})).find(name), std::string::npos);
      write_tar(good_files(), folder / name);
    }
  }
}

// Also if it is cut between two entries, so that all images before the cut are complete.
TEST(ImageSet, RefusesATarThatIsCutAnywhereBeforeItsEnd) {
  const TemporaryFolder folder;
  const std::string path = folder / "set.tar";
  write_tar(good_files(), path);
  const auto bytes = read_file(path, std::size_t{1} << 20).value();
  const auto last = std::find_if(bytes.rbegin(), bytes.rend(),
                                 [](std::byte byte) { return byte != std::byte{0}; });
  const auto end = static_cast<std::uintmax_t>(bytes.rend() - last + 511) / 512 * 512;
  std::filesystem::resize_file(path, end + 512);
  expect_good(open_image_tar(path, {}));
  for (std::uintmax_t cut = end; cut > 0; cut -= 512) {
    std::filesystem::resize_file(path, cut);
    EXPECT_NE(error_of(open_image_tar(path, {})).find("set.tar"), std::string::npos) << cut;
  }
}

TEST(ImageSet, RefusesANameThatComesTwice) {
  const TemporaryFolder folder;
  EncodedImages images(3);
  for (const char* name : {"train/a/1.jpg", "train/a/1.jpg", "test/a/1.jpg"}) {
    static std::size_t next = 0;
    ASSERT_TRUE(parse_image_name(name, images[next++]));
  }
  EXPECT_NE(arrange_images("set.tar", images).error().detail.find("twice"), std::string::npos);
}

TEST(ImageSet, TakesOnlyNamesOfTheStatedForm) {
  EncodedImage image;
  EXPECT_TRUE(parse_image_name("top/test/cat/1.jpeg", image));
  EXPECT_TRUE(image.test);
  EXPECT_EQ(image.class_name, "cat");
  EXPECT_EQ(image.file, "1.jpeg");
  for (const char* name :
       {"", "train", "train/cat", "train/cat/", "train/cat/1.png", "validation/cat/1.jpg",
        "a/b/train/cat/1.jpg", "train/cat/.hidden.jpg", "train/cat/deep/1.jpg", "1.jpg"}) {
    EXPECT_FALSE(parse_image_name(name, image)) << name;
  }
}

std::string only_cache_file(const std::string& folder) {
  std::string found;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".bin") {
      EXPECT_TRUE(found.empty());
      found = entry.path().string();
    }
  }
  return found;
}

TEST(ImageSet, UsesItsCacheAgain) {
  const TemporaryFolder folder;
  write_tar(good_files(), folder / "set.tar");
  OpenOptions options;
  options.cache_dir = folder / "deep/cache";
  expect_good(open_image_tar(folder / "set.tar", options));
  const auto time = std::filesystem::last_write_time(only_cache_file(options.cache_dir));
  expect_good(open_image_tar(folder / "set.tar", options));
  EXPECT_EQ(std::filesystem::last_write_time(only_cache_file(options.cache_dir)), time);
  EXPECT_EQ(open_image_tar(folder / "set.tar", options).value().digest,
            open_image_tar(folder / "set.tar", {}).value().digest);
}

TEST(ImageSet, RebuildsATornOrDamagedCache) {
  const TemporaryFolder folder;
  write_folder(good_files(), folder / "set");
  OpenOptions options;
  options.cache_dir = folder / "cache";
  expect_good(open_image_folder(folder / "set", options));
  const std::string cache = only_cache_file(options.cache_dir);
  const auto size = std::filesystem::file_size(cache);
  for (const std::uintmax_t torn : {std::uintmax_t{0}, std::uintmax_t{50}, size / 2, size - 1}) {
    std::filesystem::resize_file(cache, torn);
    expect_good(open_image_folder(folder / "set", options));
    EXPECT_EQ(std::filesystem::file_size(cache), size);
  }
  for (const std::uintmax_t place : {std::uintmax_t{0}, std::uintmax_t{20}, size - 1}) {
    std::fstream file(cache, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(place));
    file.put('\x5a');
    file.close();
    expect_good(open_image_folder(folder / "set", options));
  }
}

// Goal: the incomplete file of a worker that was killed while it wrote decoded images does not
// stay.
TEST(ImageSet, RemovesWhatAKilledProcessLeftInTheCache) {
  namespace fs = std::filesystem;
  const TemporaryFolder folder;
  write_folder(good_files(), folder / "set");
  OpenOptions options;
  options.cache_dir = folder / "cache";
  expect_good(open_image_folder(folder / "set", options));
  const std::string cache = only_cache_file(options.cache_dir);
  const std::string stem = cache.substr(0, cache.size() - 4);
  write_file(cache + ".tmp.1-2-3", {'x'});
  write_file(stem + ".sizes.tmp.1-2-3", {'x'});
  write_file(options.cache_dir + "/images-another.bin.tmp.1-2-3", {'x'});  // perhaps still in use
  expect_good(open_image_folder(folder / "set", options));
  EXPECT_FALSE(fs::exists(cache + ".tmp.1-2-3"));
  EXPECT_FALSE(fs::exists(stem + ".sizes.tmp.1-2-3"));
  EXPECT_TRUE(fs::exists(options.cache_dir + "/images-another.bin.tmp.1-2-3"));
  EXPECT_TRUE(fs::exists(cache));
}

TEST(ImageSet, RebuildsACacheOfAnotherVersion) {
  const TemporaryFolder folder;
  write_folder(good_files(), folder / "set");
  OpenOptions options;
  options.cache_dir = folder / "cache";
  expect_good(open_image_folder(folder / "set", options));
  const std::string cache = only_cache_file(options.cache_dir);
  const auto first_bytes = [&] {
    std::ifstream file(cache, std::ios::binary);
    std::string magic(8, ' ');
    file.read(magic.data(), 8);
    return magic;
  };
  const std::string magic = first_bytes();
  EXPECT_EQ(magic, "FMCACHE4");
  {
    std::fstream file(cache, std::ios::in | std::ios::out | std::ios::binary);
    file.write("FMCACHE3", 8);  // of a version without a hash of the test records
  }
  expect_good(open_image_folder(folder / "set", options));
  EXPECT_EQ(first_bytes(), magic);
}

// Goal: labels beyond one byte survive decoding and the cache.
TEST(ImageSet, HasRoomForMoreThan256Classes) {
  constexpr int kClasses = 300;
  const File small = jpeg(8, 8, {90, 90, 90});
  Files files;
  for (int i = 0; i < kClasses; ++i) {
    files["train/class" + std::to_string(1000 + i) + "/a.jpg"] = small;
  }
  files["test/class1299/a.jpg"] = jpeg(8, 8, {200, 10, 10});
  const TemporaryFolder folder;
  write_folder(files, folder / "set");
  OpenOptions options;
  options.cache_dir = folder / "cache";
  for (int round = 0; round < 2; ++round) {  // decoded, then from the cache
    const DatasetPair pair = open_image_folder(folder / "set", options).value();
    ASSERT_EQ(pair.classes, kClasses);
    for (int i = 0; i < kClasses; ++i) {
      ASSERT_EQ(pair.train->label(static_cast<std::size_t>(i)), i);
    }
    EXPECT_EQ(pair.test->label(0), 299);
    std::vector<std::uint8_t> pixels(3 * 64);
    EXPECT_TRUE(pair.test->read(0, pixels).ok());
    EXPECT_NEAR(pixels[0], 200, 3);
    EXPECT_NEAR(pair.mean[0], 90.0 / 255, 0.01);
  }
}

TEST(ImageSet, DecodesAgainWhenTheSourceChanged) {
  const TemporaryFolder folder;
  write_folder(good_files(), folder / "set");
  OpenOptions options;
  options.cache_dir = folder / "cache";
  expect_good(open_image_folder(folder / "set", options));
  write_file(folder / "set/train/cat/c.jpg", jpeg(8, 8, {1, 2, 3}));
  EXPECT_EQ(open_image_folder(folder / "set", options).value().train->size(), 4U);
}

TEST(ImageSet, WorksWithoutACacheThatCannotBeWritten) {
  const TemporaryFolder folder;
  write_tar(good_files(), folder / "set.tar");
  write_file(folder / "file", {'x'});
  OpenOptions options;
  options.cache_dir = folder / "file";
  expect_good(open_image_tar(folder / "set.tar", options));
}

TEST(ImageSet, OneSetHasOneKeyHoweverItIsNamed) {
  namespace fs = std::filesystem;
  const TemporaryFolder folder;
  write_folder(good_files(), folder / "set");
  write_tar(good_files(), folder / "set.tar");
  const auto key_of_folder = [](const std::string& name) {
    return folder_key(list_image_folder(name).value()).value();
  };
  const Digest key = key_of_folder(folder / "set");
  const Digest key_of_tar = tar_key(folder / "set.tar").value();
  const std::string relative = fs::relative(folder.path(), fs::current_path()).string();
  for (const std::string& way : {relative, "./" + relative, folder / ".", folder / "set/.."}) {
    EXPECT_EQ(key_of_folder(way + "/set"), key) << way;
    EXPECT_EQ(key_of_folder(way + "/set/"), key) << way;
    EXPECT_EQ(tar_key(way + "/set.tar").value(), key_of_tar) << way;
  }
}

TEST(ImageSet, SeveralOpenersShareOneCache) {
  const TemporaryFolder folder;
  write_tar(good_files(), folder / "set.tar");
  OpenOptions options;
  options.cache_dir = folder / "cache";
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] { expect_good(open_image_tar(folder / "set.tar", options)); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  only_cache_file(options.cache_dir);
}

}  // namespace
}  // namespace mayfly::datasets
