#pragma once

// Image folders and tars for tests.

#include <archive.h>
#include <archive_entry.h>
#include <gtest/gtest.h>
#include <turbojpeg.h>

#include <array>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "tests/unit/datasets/temporary_folder.hpp"

namespace mayfly::datasets {

using File = std::vector<std::uint8_t>;
using Files = std::map<std::string, File>;  // by name inside the data set

/// A one-colour JPEG; such an image survives the compression almost unchanged.
inline File jpeg(int width, int height, std::array<std::uint8_t, 3> colour) {
  std::vector<std::uint8_t> rgb;
  for (int i = 0; i < width * height; ++i) {
    rgb.insert(rgb.end(), colour.begin(), colour.end());
  }
  const tjhandle encoder = tjInitCompress();
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  tjCompress2(encoder, rgb.data(), width, 0, height, TJPF_RGB, &bytes, &size, TJSAMP_444, 95, 0);
  File file(bytes, bytes + size);
  tjFree(bytes);
  tjDestroy(encoder);
  return file;
}

/// A JPEG of a soft random pattern: every part of it looks different, and scaling it keeps it
/// recognisable. `subsampling` is one of turbojpeg's TJSAMP_; `format` TJPF_RGB or TJPF_CMYK.
inline File photo(int width, int height, int seed, int subsampling = TJSAMP_420,
                  int format = TJPF_RGB) {
  const int channels = format == TJPF_CMYK ? 4 : 3;
  std::vector<std::uint8_t> pixels;
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      for (int c = 0; c < channels; ++c) {
        const double wave = std::sin(0.05 * x * (1 + c) + seed) + std::cos(0.07 * y + seed * c);
        pixels.push_back(static_cast<std::uint8_t>(128 + 60 * wave));
      }
    }
  }
  const tjhandle encoder = tjInitCompress();
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  EXPECT_EQ(tjCompress2(encoder, pixels.data(), width, 0, height, format, &bytes, &size,
                        subsampling, 90, 0),
            0)
      << tjGetErrorStr2(encoder);
  File file(bytes, bytes + size);
  tjFree(bytes);
  tjDestroy(encoder);
  return file;
}

/// Writes the files below `folder`.
inline void write_folder(const Files& files, const std::string& folder) {
  for (const auto& [name, content] : files) {
    write_file(folder + '/' + name, content);
  }
}

/// Packs the files in reverse order. The end of the archive's name selects the compression.
inline void write_tar(const Files& files, const std::string& path, const std::string& prefix = "") {
  archive* writer = archive_write_new();
  archive_write_set_format_ustar(writer);
  if (path.ends_with(".xz")) {
    archive_write_add_filter_xz(writer);
  } else if (path.ends_with(".gz")) {
    archive_write_add_filter_gzip(writer);
  }
  ASSERT_EQ(archive_write_open_filename(writer, path.c_str()), ARCHIVE_OK);
  for (auto file = files.rbegin(); file != files.rend(); ++file) {  // unsorted on purpose
    archive_entry* entry = archive_entry_new();
    archive_entry_set_pathname(entry, (prefix + file->first).c_str());
    archive_entry_set_size(entry, static_cast<la_int64_t>(file->second.size()));
    archive_entry_set_filetype(entry, AE_IFREG);
    archive_entry_set_perm(entry, 0644);
    archive_write_header(writer, entry);
    archive_write_data(writer, file->second.data(), file->second.size());
    archive_entry_free(entry);
  }
  archive_write_close(writer);
  archive_write_free(writer);
}

}  // namespace mayfly::datasets
