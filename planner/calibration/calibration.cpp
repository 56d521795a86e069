#include "planner/calibration/calibration.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <type_traits>
#include <variant>

#include "base/parse.hpp"
#include "base/text.hpp"
#include "base/try_assign.hpp"
#include "planner/calibration/csv.hpp"

namespace mayfly::planner {
namespace {

/// Which numbers a column may hold.
enum class Range { kPositive, kNotNegative, kShare, kHourOfDay, kCount };

template <typename Row>
struct Column {
  const char* name;
  std::variant<std::string Row::*, double Row::*, std::optional<double> Row::*, int Row::*> place;
  Range range = Range::kNotNegative;
};

template <typename Row>
using Columns = std::vector<Column<Row>>;

struct Bounds {
  double least, most;
  const char* name;
};

Bounds bounds_of(Range range) {
  switch (range) {
    case Range::kPositive: return {std::numeric_limits<double>::min(), 1e15, "a number above 0"};
    case Range::kNotNegative: return {0, 1e15, "a number of at least 0"};
    case Range::kShare: return {0, 1, "a number from 0 to 1"};
    case Range::kHourOfDay: return {0, 24, "an hour of the day"};
    case Range::kCount: return {0, 1e6, "a whole number"};
  }
  return {0, 0, ""};
}

Columns<StepTimeRow> columns_of(const StepTimeRow* /*row*/) {
  using R = StepTimeRow;
  return {{"gpu", &R::gpu},
          {"model", &R::model},
          {"family", &R::family},
          {"gflops", &R::gflops, Range::kPositive},
          {"params", &R::params, Range::kPositive},
          {"tensors", &R::tensors},
          {"network_latency_ms", &R::network_latency_ms},
          {"samples", &R::samples},
          {"step_s", &R::step_s, Range::kPositive},
          {"sd_s", &R::sd_s},
          {"kind", &R::kind}};
}

Columns<ClusterSpeedRow> columns_of(const ClusterSpeedRow* /*row*/) {
  using R = ClusterSpeedRow;
  return {{"gpu", &R::gpu},
          {"parameter_servers", &R::parameter_servers, Range::kCount},
          {"model", &R::model},
          {"workers", &R::workers, Range::kCount},
          {"steps_per_s", &R::steps_per_s, Range::kPositive},
          {"sd", &R::sd},
          {"runs", &R::runs},
          {"kind", &R::kind},
          {"microbatches", &R::microbatches, Range::kPositive},
          {"threads", &R::threads, Range::kPositive},
          {"cores", &R::cores, Range::kPositive}};
}

Columns<CheckpointRow> columns_of(const CheckpointRow* /*row*/) {
  using R = CheckpointRow;
  return {{"model", &R::model},     {"family", &R::family},
          {"tensors", &R::tensors}, {"weights_mb", &R::weights_mb, Range::kPositive},
          {"meta_mb", &R::meta_mb}, {"duration_s", &R::duration_s, Range::kPositive},
          {"local_s", &R::local_s}};
}

Columns<LifetimeByHourRow> columns_of(const LifetimeByHourRow* /*row*/) {
  using R = LifetimeByHourRow;
  return {{"gpu", &R::gpu},
          {"region", &R::region},
          {"servers", &R::servers, Range::kPositive},
          {"hours", &R::hours, Range::kPositive},
          {"revoked_by_then", &R::revoked_by_then}};
}

Columns<LifetimeServerRow> columns_of(const LifetimeServerRow* /*row*/) {
  using R = LifetimeServerRow;
  return {{"study", &R::study},
          {"gpu", &R::gpu},
          {"zone", &R::zone},
          {"launched", &R::launched},
          {"launch_hour_of_day", &R::launch_hour_of_day, Range::kHourOfDay},
          {"lifetime_s", &R::lifetime_s},
          {"ended_by", &R::ended_by}};
}

Columns<ServerUptimeRow> columns_of(const ServerUptimeRow* /*row*/) {
  using R = ServerUptimeRow;
  return {{"cluster", &R::cluster}, {"zone", &R::zone},         {"run", &R::run},
          {"role", &R::role},       {"uptime_s", &R::uptime_s}, {"end", &R::end}};
}

Columns<TrainingJobRow> columns_of(const TrainingJobRow* /*row*/) {
  using R = TrainingJobRow;
  return {{"cluster", &R::cluster},
          {"workers", &R::workers, Range::kCount},
          {"parameter_servers", &R::parameter_servers, Range::kCount},
          {"runs", &R::runs, Range::kPositive},
          {"duration_s", &R::duration_s, Range::kPositive},
          {"duration_sd_s", &R::duration_sd_s},
          {"accuracy", &R::accuracy, Range::kShare},
          {"accuracy_sd", &R::accuracy_sd},
          {"cost_usd", &R::cost_usd}};
}

Columns<CrossRegionRow> columns_of(const CrossRegionRow* /*row*/) {
  using R = CrossRegionRow;
  return {{"split_of_4_workers", &R::split},
          {"duration_s", &R::duration_s, Range::kPositive},
          {"duration_sd_s", &R::duration_sd_s},
          {"steps_per_s", &R::steps_per_s, Range::kPositive},
          {"accuracy", &R::accuracy, Range::kShare}};
}

Columns<ReplacementRow> columns_of(const ReplacementRow* /*row*/) {
  using R = ReplacementRow;
  return {{"what", &R::what}, {"item", &R::item}, {"mean_s", &R::mean_s}, {"sd_s", &R::sd_s}};
}

Columns<StartupRow> columns_of(const StartupRow* /*row*/) {
  using R = StartupRow;
  return {{"class", &R::market_class},
          {"gpu", &R::gpu},
          {"provision_s", &R::provision_s},
          {"staging_s", &R::staging_s},
          {"booting_s", &R::booting_s}};
}

Columns<RemainingTimeRow> columns_of(const RemainingTimeRow* /*row*/) {
  using R = RemainingTimeRow;
  return {{"step_of_revocation", &R::step_of_revocation},
          {"estimated_s", &R::estimated_s},
          {"actual_s", &R::actual_s, Range::kPositive}};
}

Columns<SwitchRunRow> columns_of(const SwitchRunRow* /*row*/) {
  using R = SwitchRunRow;
  return {{"group", &R::group},
          {"run", &R::run},
          {"final_accuracy", &R::final_accuracy, Range::kShare},
          {"time_s", &R::time_s, Range::kPositive},
          {"last_step", &R::last_step}};
}

Columns<PriceRow> columns_of(const PriceRow* /*row*/) {
  using R = PriceRow;
  return {
      {"resource", &R::resource}, {"market", &R::market}, {"usd_per_second", &R::usd_per_second}};
}

/// Stores one field in the row; false if the column cannot hold it.
template <typename Row>
bool assign(const std::string& field, const Column<Row>& column, Row& row) {
  const Bounds bounds = bounds_of(column.range);
  return std::visit(
      [&](auto place) {
        auto& target = row.*place;
        using Target = std::remove_reference_t<decltype(target)>;
        if constexpr (std::is_same_v<Target, std::string>) {
          target = field;
          return true;
        } else if constexpr (std::is_same_v<Target, int>) {
          const auto number = number_in<int>(field, 0, static_cast<int>(bounds.most));
          target = number.value_or(0);
          return number.has_value();
        } else {
          const auto number = number_in<double>(field, bounds.least, bounds.most);
          target = number.value_or(0);
          const bool may_be_empty = std::is_same_v<Target, std::optional<double>>;
          if constexpr (may_be_empty) {
            if (field.empty()) {
              target = std::nullopt;
              return true;
            }
          }
          return number.has_value();
        }
      },
      column.place);
}

template <typename Row>
Result<std::vector<Row>> rows_of(const std::string& name, std::string_view text) {
  TRY_ASSIGN(const CsvTable table, parse_csv(name, text));
  const Columns<Row> columns = columns_of(static_cast<const Row*>(nullptr));
  std::vector<std::size_t> places;
  for (const Column<Row>& column : columns) {
    const auto found = std::find(table.columns.begin(), table.columns.end(), column.name);
    const bool is_optional = std::holds_alternative<std::optional<double> Row::*>(column.place);
    if (found == table.columns.end() && !is_optional) {
      return Error{Errc::kInvalidInput, name + ": has no column " + column.name};
    }
    places.push_back(static_cast<std::size_t>(found - table.columns.begin()));
  }
  std::vector<Row> rows;
  for (const CsvRow& source : table.rows) {
    Row row;
    for (std::size_t i = 0; i < columns.size(); ++i) {
      if (places[i] < source.fields.size() && !assign(source.fields[places[i]], columns[i], row)) {
        return Error{Errc::kInvalidInput, name + ":" + std::to_string(source.line) + ": " +
                                              columns[i].name + " is '" + source.fields[places[i]] +
                                              "', not " + bounds_of(columns[i].range).name};
      }
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

template <typename Row>
Result<void> append(const std::string& name, std::string_view text, std::vector<Row>& target) {
  TRY_ASSIGN(std::vector<Row> rows, rows_of<Row>(name, text));
  target.insert(target.end(), std::make_move_iterator(rows.begin()),
                std::make_move_iterator(rows.end()));
  return {};
}

/// A field in the notation of RFC 4180. Names of folders may be any bytes, and a row is a line.
std::string field_text(const std::string& name) {
  const std::string text = printable_line(name);
  if (text.find_first_of(",\"") == std::string::npos) {
    return text;
  }
  std::string quoted(1, '"');
  for (const char c : text) {
    quoted.append(c == '"' ? 2 : 1, c);
  }
  quoted += '"';
  return quoted;
}
std::string field_text(int number) {
  return std::to_string(number);
}
std::string field_text(double number) {
  return shortest_text(number);
}
std::string field_text(const std::optional<double>& number) {
  return number ? field_text(*number) : std::string();
}

void append_field(std::string& line, std::string_view text) {
  if (!line.empty()) {
    line += ',';
  }
  line += text;
}

/// The text of a table; empty if no source has a row.
template <auto table>
std::string text_of(const std::vector<TableSource>& sources) {
  using Row = typename std::remove_reference_t<decltype(Calibration().*table)>::value_type;
  const Columns<Row> columns = columns_of(static_cast<const Row*>(nullptr));
  std::string text;
  for (const TableSource& source : sources) {
    std::string head;
    for (const Column<Row>& column : columns) {
      append_field(head, column.name);
    }
    for (const auto& [name, value] : source.further) {
      append_field(head, name);
    }
    for (const Row& row : source.rows->*table) {
      text += text.empty() ? head + "\n" : "";
      for (const Column<Row>& column : columns) {
        text += &column == &columns.front() ? "" : ",";
        text += std::visit([&row](auto place) { return field_text(row.*place); }, column.place);
      }
      for (const auto& [name, value] : source.further) {
        text += ',';
        text += field_text(value);
      }
      text += '\n';
    }
  }
  return text;
}

using Adder = Result<void> (*)(const std::string&, std::string_view, Calibration&);
using Writer = std::string (*)(const std::vector<TableSource>&);

template <auto table>
Result<void> add(const std::string& name, std::string_view text, Calibration& calibration) {
  return append(name, text, calibration.*table);
}

constexpr const char* kSuffix = ".csv";
constexpr std::string_view kCrossRegion = "cross_region_";

Result<void> add_cross_region(const std::string& name, std::string_view text,
                              Calibration& calibration) {
  TRY_ASSIGN(std::vector<CrossRegionRow> rows, rows_of<CrossRegionRow>(name, text));
  std::string gpu = name.substr(kCrossRegion.size());
  gpu.resize(gpu.size() - std::string_view(kSuffix).size());
  std::transform(gpu.begin(), gpu.end(), gpu.begin(), [](char c) {
    return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  });
  for (CrossRegionRow& row : rows) {
    row.gpu = gpu;
    calibration.cross_region.push_back(std::move(row));
  }
  return {};
}

struct Table {
  std::string_view name;  ///< without its suffix; a last underscore stands for any ending
  Adder adder;
  Writer writer = nullptr;  ///< none if the file name contains a field of all rows
};

template <auto table>
constexpr Table table_at(std::string_view name) {
  return {name, add<table>, text_of<table>};
}

constexpr std::array kTables = {table_at<&Calibration::step_times>("step_time"),
                                table_at<&Calibration::cluster_speeds>("cluster_speed"),
                                table_at<&Calibration::checkpoints>("checkpoint"),
                                table_at<&Calibration::lifetimes_by_hour>("lifetime_by_hour"),
                                table_at<&Calibration::lifetime_servers>("lifetime_servers"),
                                table_at<&Calibration::server_uptimes>("training_server_uptime"),
                                table_at<&Calibration::training_jobs>("training_jobs"),
                                Table{kCrossRegion, add_cross_region},
                                table_at<&Calibration::replacements>("replacement"),
                                table_at<&Calibration::startups>("startup_untrimmed"),
                                table_at<&Calibration::remaining_times>("remaining_time"),
                                table_at<&Calibration::switch_runs>("switch_runs"),
                                table_at<&Calibration::prices>("prices")};

const Table* table_of(std::string_view name) {
  if (!name.ends_with(kSuffix)) {
    return nullptr;
  }
  name.remove_suffix(std::string_view(kSuffix).size());
  for (const Table& table : kTables) {
    if (name == table.name || (table.name.ends_with('_') && name.starts_with(table.name))) {
      return &table;
    }
  }
  return nullptr;
}

}  // namespace

bool is_calibration_file(std::string_view name) {
  return table_of(name) != nullptr;
}

Result<void> add_table(const std::string& name, std::string_view text, Calibration& calibration) {
  const Table* table = table_of(name);
  if (table == nullptr) {
    return Error{Errc::kInvalidInput, name + ": no table of a calibration has this name"};
  }
  return table->adder(name, text, calibration);
}

std::vector<TableText> tables_of(const std::vector<TableSource>& sources) {
  std::vector<TableText> tables;
  for (const Table& table : kTables) {
    std::string text = table.writer == nullptr ? "" : table.writer(sources);
    if (!text.empty()) {
      tables.push_back({std::string(table.name) + kSuffix, std::move(text)});
    }
  }
  return tables;
}

}  // namespace mayfly::planner
