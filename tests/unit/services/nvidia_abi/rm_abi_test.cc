// The declared layouts beside what the headers of every release of the open kernel module say
// (rm_abi.txt). What is not in the table has no layout, and nothing is assumed of it.

#include "services/nvidia_abi/rm_abi.h"

#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "services/nvidia_abi/rm_controls.h"

namespace qgpu::rm::rm_abi_test {
namespace {

using Facts = std::map<std::string, std::size_t>;

struct Block {
  std::vector<std::string> releases;
  Facts facts;
  bool isOfEvery() const { return releases == std::vector<std::string>{"every"}; }
};

std::vector<Block> readBlocks() {
  std::vector<Block> all(1);
  std::ifstream in(QGPU_RM_ABI_FIXTURE);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string word;
    if (!(words >> word) || word == "#") continue;
    if (word == "end") {
      all.emplace_back();
      if (all.front().isOfEvery()) all.back().facts = all.front().facts;
    } else if (word == "releases") {
      while (words >> word) all.back().releases.push_back(word);
    } else {
      words >> all.back().facts[word];
    }
  }
  all.pop_back();
  if (all.front().isOfEvery()) all.erase(all.begin());
  return all;
}

Layout layoutFor(const std::string& release) {
  return layoutOf(release.c_str(), release.size() + 1);
}

// What is declared of calls on files that hold objects, by the fixture's names. The form of one on
// dma-bufs is told by its size.
Facts declaredOfFiles(std::size_t dmaBufSize) {
  const DmaBufForm dmaBuf = dmaBufForm(static_cast<std::uint32_t>(dmaBufSize));
  return {
      {"export.size", sizeof(ExportOne)},
      {"export.object", offsetof(ExportOne, object)},
      {"export.fd", offsetof(ExportOne, fd)},
      {"exports.size", sizeof(ExportMany)},
      {"exports.objects", offsetof(ExportMany, objects)},
      {"exports.count", offsetof(ExportMany, count)},
      {"exports.index", offsetof(ExportMany, index)},
      {"import.size", sizeof(ImportOne)},
      {"import.parent", offsetof(ImportOne, parent)},
      {"import.object", offsetof(ImportOne, object)},
      {"imports.size", sizeof(ImportMany)},
      {"imports.parent", offsetof(ImportMany, parent)},
      {"imports.objects", offsetof(ImportMany, objects)},
      {"imports.types", offsetof(ImportMany, types)},
      {"imports.count", offsetof(ImportMany, count)},
      {"imports.index", offsetof(ImportMany, index)},
      {"dmabuf.size", dmaBuf.size},
      {"dmabuf.client", offsetof(DmaBufCall, client)},
      {"dmabuf.count", offsetof(DmaBufCall, count)},
      {"dmabuf.index", offsetof(DmaBufCall, index)},
      {"dmabuf.objects", dmaBuf.objectsAt},
      {"dmabuf.status", dmaBuf.statusAt},
  };
}

// And of the controls that take channels off the hardware and put them back (rm_controls.h).
Facts declaredOfChannels() {
  return {
      {"disable.command", kFifoDisableChannels},
      {"disable.size", sizeof(DisableChannels)},
      {"disable.most", kDisabledMax},
      {"disable.disable", offsetof(DisableChannels, disable)},
      {"disable.count", offsetof(DisableChannels, count)},
      {"disable.only_scheduling", offsetof(DisableChannels, onlyScheduling)},
      {"disable.rewind", offsetof(DisableChannels, rewind)},
      {"disable.event", offsetof(DisableChannels, event)},
      {"disable.clients", offsetof(DisableChannels, clients)},
      {"disable.channels", offsetof(DisableChannels, channels)},
      {"preempt.command", kGroupPreempt},
      {"preempt.size", sizeof(Preempt)},
      {"preempt.wait", offsetof(Preempt, wait)},
      {"preempt.own_timeout", offsetof(Preempt, ownTimeout)},
      {"preempt.timeout_us", offsetof(Preempt, timeoutUs)},
      {"restart.command", kChannelRestartRunlist},
      {"restart.size", sizeof(RestartRunlist)},
      {"restart.force", offsetof(RestartRunlist, force)},
      {"restart.dont_wait", offsetof(RestartRunlist, dontWait)},
      {"handle.command", kClientHandleInfo},
      {"handle.size", sizeof(HandleInfo)},
      {"handle.object", offsetof(HandleInfo, object)},
      {"handle.index", offsetof(HandleInfo, index)},
      {"handle.result", offsetof(HandleInfo, result)},
      {"handle.parent", kHandleParent},
      {"handle.class", kHandleClass},
      {"uuid.command", kUuidInfo},
      {"uuid.size", sizeof(UuidInfo)},
      {"uuid.uuid", offsetof(UuidInfo, uuid)},
      {"uuid.flags", offsetof(UuidInfo, flags)},
      {"uuid.device", offsetof(UuidInfo, device)},
      {"uuid.subdevice", offsetof(UuidInfo, subdevice)},
  };
}

// Everything that is declared, in the same way.
Facts declared(Layout layout, std::size_t dmaBufSize) {
  const AllocForms forms = allocForms(layout);
  Facts all = {
      {"free.size", sizeof(FreeCall)},
      {"free.status", offsetof(FreeCall, status)},
      {"memory.size", offsetof(AllocMemoryCall, fd)},
      {"memory.class", offsetof(AllocMemoryCall, objectClass)},
      {"memory.limit", offsetof(AllocMemoryCall, limit)},
      {"memory.status", offsetof(AllocMemoryCall, status)},
      {"object.size", sizeof(AllocObjectCall)},
      {"short.size", forms.shortForm.size},
      {"short.parameters", offsetof(AllocCall, parameters)},
      {"short.status", forms.shortForm.statusAt},
      {"long.size", forms.longForm.size},
      {"long.status", forms.longForm.statusAt},
      {"dup.size", sizeof(DupCall)},
      {"dup.status", offsetof(DupCall, status)},
      {"control.size", sizeof(ControlCall)},
      {"control.command", offsetof(ControlCall, command)},
      {"control.parameters", offsetof(ControlCall, parameters)},
      {"control.parameters_size", offsetof(ControlCall, parametersSize)},
      {"control.status", offsetof(ControlCall, status)},
      {"heap.size", sizeof(HeapCall)},
      {"heap.function", offsetof(HeapCall, function)},
      {"heap.status", offsetof(HeapCall, status)},
      {"heap.total", offsetof(HeapCall, total)},
      {"heap.free", offsetof(HeapCall, free)},
      {"heap.by_size.object", offsetof(HeapCall, bySize.object)},
      {"heap.by_size.flags", offsetof(HeapCall, bySize.flags)},
      {"heap.by_size.attributes", offsetof(HeapCall, bySize.attributes)},
      {"heap.by_size.size", offsetof(HeapCall, bySize.size)},
      {"heap.tiled.attributes", offsetof(HeapCall, tiled.attributes)},
      {"heap.tiled.size", offsetof(HeapCall, tiled.size)},
      {"heap.in_range.attributes", offsetof(HeapCall, inRange.attributes)},
      {"heap.in_range.size", offsetof(HeapCall, inRange.size)},
      {"heap.info.size", offsetof(HeapCall, info.size)},
      {"heap.freed.object", offsetof(HeapCall, freed.object)},
      {"parameters.flags", offsetof(MemoryParameters, flags)},
      {"parameters.attributes", offsetof(MemoryParameters, attributes)},
      {"parameters.size", offsetof(MemoryParameters, size)},
      {"channel.engine", kChannelEngineAt},
      {"group.engine", kGroupEngineAt},
      {"timeslice.command", kGroupSetTimeslice},
      {"timeslice.size", sizeof(Timeslice)},
      {"device.id", offsetof(DeviceParameters, device)},
      {"transfer.size", sizeof(TransferCall)},
      {"pids.command", kGetPids},
      {"pids.size", sizeof(PidsCall)},
      {"pids.count", offsetof(PidsCall, count)},
      {"pids.all", offsetof(PidsCall, pids)},
      {"surface.size", sizeof(SurfaceInfoCall)},
      {"surface.list", offsetof(SurfaceInfoCall, list)},
      {"surface.pair", sizeof(SurfaceInfo)},
      {"fabric.memory", fabricMemoryAt(layout)},
      {"version.size", sizeof(VersionCall)},
      {"version.text", offsetof(VersionCall, version)},
  };
  all.merge(declaredOfFiles(dmaBufSize));
  all.merge(declaredOfChannels());
  return all;
}

TEST(RmAbi, EveryReleasesHeadersAgreeWithWhatIsDeclared) {
  const std::vector<Block> blocks = readBlocks();
  std::size_t releases = 0;
  for (const Block& block : blocks) {
    for (const std::string& release : block.releases) {
      const Layout layout = layoutFor(release);
      ASSERT_NE(layout, Layout::kUnknown) << release;
      const auto ours = declared(layout, block.facts.at("dmabuf.size"));
      for (const auto& [name, value] : block.facts) {
        if (name == "parameters.size_of") continue;
        ASSERT_TRUE(ours.count(name)) << name;
        EXPECT_EQ(ours.at(name), value) << name << " of " << release;
      }
      EXPECT_EQ(ours.size() + 1, block.facts.size()) << "something declared was not compared";
      ++releases;
    }
  }
  EXPECT_EQ(releases, 193u);
}

TEST(RmAbi, AnAllocationsParametersReachBeyondWhatIsRead) {
  for (const Block& block : readBlocks()) {
    EXPECT_GE(block.facts.at("parameters.size_of"), sizeof(MemoryParameters));
  }
}

TEST(RmAbi, EveryKnownDriverWasLookedAt) {
  std::map<std::uint32_t, int> seen;
  for (const Block& block : readBlocks()) {
    for (const std::string& release : block.releases) {
      ++seen[static_cast<std::uint32_t>(std::stoul(release))];
    }
  }
  for (const KnownDriver& known : kKnownDrivers) EXPECT_GT(seen[known.major], 0) << known.major;
}

TEST(RmAbi, NothingIsAssumedOfADriverThatIsNotInTheTable) {
  for (const char* version : {"450.102.04", "510.47", "540.4", "596.1", "600.10.02", "5800.1", "",
                              "580", "abc", "58x.1", "-580.1", "99999999999.1"}) {
    EXPECT_EQ(layoutFor(version), Layout::kUnknown) << version;
  }
  EXPECT_EQ(layoutOf("580.142", 3), Layout::kUnknown) << "cut before its point";
  EXPECT_EQ(layoutOf("580.142", 4), Layout::kFrom535);
}

TEST(RmAbi, ANewerDriverHasTheLayoutThatItWasSeenToHaveAndNoOtherIsGivenOne) {
  const auto seen = [](const std::string& version, std::uint64_t as) {
    return layoutOf(version.c_str(), version.size() + 1, as);
  };
  EXPECT_EQ(kNewestKnown, 595u);
  for (const char* version : {"596.1", "615.71.09", "5800.1"}) {
    EXPECT_EQ(seen(version, 595), Layout::kFrom535) << version;
    EXPECT_EQ(seen(version, 515), Layout::kFrom515) << version;
    for (const std::uint64_t none : {0ull, 594ull, 616ull, 595ull << 32}) {
      EXPECT_EQ(seen(version, none), Layout::kUnknown) << version << " as " << none;
    }
  }
  for (const char* version : {"450.102.04", "540.4", "585.1", "", "abc", "99999999999.1"}) {
    EXPECT_EQ(seen(version, 595), Layout::kUnknown) << version;
  }
  EXPECT_EQ(seen("515.43", 595), Layout::kFrom515) << "known by itself";
}

}  // namespace
}  // namespace qgpu::rm::rm_abi_test
