#include "tests/unit/actors/member/member_world.h"

#include <gtest/gtest.h>

#include "runtime/enum_names.h"

namespace qgpu::testing {
namespace {

WorldOptions asMember(WorldOptions options) {
  options.member = true;
  return options;
}

MemberOptions memberOptions() {
  MemberOptions options;
  options.cpuMilli = 4'000;
  options.hostMem = gibibytes(64);
  options.attachSocket = "/run/qgpu/attach.sock";
  options.environment = {"POCL_DEVICES=cpu"};
  return options;
}

}  // namespace

MemberWorld::MemberWorld(WorldOptions options)
    : world(asMember(std::move(options))),
      linkId(world.fixture.add(link)),
      member(memberOptions(), {world.nodeId, linkId}) {
  world.fixture.attach(world.memberId, member);
  world.start();
}

void MemberWorld::up() {
  since_ = link.size();
  world.fixture.tellUrgent(linkId, world.memberId,
                           [](schema::Envelope::Builder e) { e.setLinkUp(); });
  world.run();
}

void MemberWorld::down(const char* why) {
  world.fixture.tellUrgent(linkId, world.memberId,
                           [why](schema::Envelope::Builder e) { e.setLinkDown(why); });
  world.run();
}

void MemberWorld::tell(const Word& fill) {
  tellAs(session, term, fill);
}

void MemberWorld::tellAs(std::uint64_t inSession, std::uint64_t ofTerm, const Word& fill) {
  const auto build = [&](schema::Envelope::Builder envelope) {
    auto word = envelope.initToMember();
    word.setSession(inSession);
    word.setTerm(ofTerm);
    fill(word);
  };
  EXPECT_EQ(world.fixture.tell(linkId, world.memberId, build), SendResult::Sent);
  world.run();
}

void MemberWorld::welcome(std::uint64_t inSession, std::uint64_t ofTerm) {
  session = inSession;
  term = ofTerm;
  tell([nonce = hello().getNonce()](schema::ToMember::Builder word) {
    auto welcome = word.initWelcome();
    welcome.setNonce(nonce);
    welcome.setLeaseNs(kLeaseNs);
    welcome.setBeatNs(kBeatNs);
  });
}

void MemberWorld::join(std::uint64_t inSession, std::uint64_t ofTerm) {
  up();
  welcome(inSession, ofTerm);
  EXPECT_EQ(member.state(), MemberState::Member);
}

void MemberWorld::beatSeen() {
  const auto beats = said(schema::FromMember::BEAT);
  ASSERT_FALSE(beats.empty());
  tell([stamp = beats.back().getBeat()](schema::ToMember::Builder w) { w.setBeatSeen(stamp); });
}

std::vector<schema::FromMember::Reader> MemberWorld::said() const {
  std::vector<schema::FromMember::Reader> found;
  for (std::size_t i = since_; i < link.size(); ++i) {
    if (link[i].isFromMember()) found.push_back(link[i].getFromMember());
  }
  return found;
}

std::vector<schema::FromMember::Reader> MemberWorld::said(schema::FromMember::Which which) const {
  std::vector<schema::FromMember::Reader> found;
  for (const auto word : said()) {
    if (word.which() == which) found.push_back(word);
  }
  return found;
}

schema::MemberHello::Reader MemberWorld::hello() const {
  const auto hellos = said(schema::FromMember::HELLO);
  if (hellos.empty()) {
    ADD_FAILURE() << "no hello was said";
    return schema::MemberHello::Reader();
  }
  return hellos.back().getHello();
}

std::string MemberWorld::heldAs(std::uint64_t clusterTask) const {
  std::string state = "never said";
  const auto read = [&](schema::HeldTask::Reader task) {
    if (task.getClusterTask() != clusterTask) return;
    state = task.getEnded() ? "ended" : enumName(task.getState());
  };
  for (const auto word : said()) {
    if (word.isHello()) {
      for (const auto task : word.getHello().getTasks()) read(task);
    } else if (word.isTasks()) {
      for (const auto task : word.getTasks()) read(task);
    } else if (word.isBound() && word.getBound().getTask() == clusterTask) {
      state = "bound";
    }
  }
  return state;
}

bool MemberWorld::dropped() const {
  for (std::size_t i = since_; i < link.size(); ++i) {
    if (link[i].isLinkDown()) return true;
  }
  return false;
}

MemberWorld::Word MemberWorld::bind(std::uint64_t task, std::uint32_t epoch, const TaskSpec& spec,
                                    std::vector<std::string> cards) {
  return [=](schema::ToMember::Builder word) {
    auto order = word.initBind();
    order.setTask(task);
    order.setEpoch(epoch);
    writeSpec(spec, order.initSpec());
    auto list = order.initCards(static_cast<unsigned>(cards.size()));
    for (unsigned i = 0; i < list.size(); ++i) list.set(i, cards[i]);
  };
}

MemberWorld::Word MemberWorld::end(std::uint64_t task, std::uint32_t epoch,
                                   std::uint64_t nodeTask) {
  return [=](schema::ToMember::Builder word) {
    auto order = word.initEnd();
    order.setTask(task);
    order.setEpoch(epoch);
    order.setNodeTask(nodeTask);
  };
}

std::vector<std::string> MemberWorld::refusals(std::uint64_t task) const {
  std::vector<std::string> codes;
  for (const auto word : said(schema::FromMember::REFUSED)) {
    const auto refused = word.getRefused();
    if (refused.getTask() == task) codes.push_back(text(refused.getFailure().getCode()));
  }
  return codes;
}

std::size_t MemberWorld::bounds(std::uint64_t task) const {
  std::size_t count = 0;
  for (const auto word : said(schema::FromMember::BOUND)) {
    count += word.getBound().getTask() == task ? 1 : 0;
  }
  return count;
}

std::uint64_t MemberWorld::forward(const TaskSpec& spec, World::As as) {
  const std::uint64_t corr = ++lastCorr_;
  const auto build = [&](schema::Envelope::Builder envelope) {
    auto request = envelope.initRequest();
    request.setCorr(corr);
    request.setPeerUid(as.uid);
    request.setMayChange(as.mayChange);
    writeSpec(spec, request.initBind());
  };
  EXPECT_EQ(world.fixture.tell(world.clientId, world.memberId, build), SendResult::Sent);
  world.run();
  return corr;
}

MemberWorld::Word MemberWorld::forwarded(std::uint64_t corr, std::uint64_t task) {
  return [=](schema::ToMember::Builder word) {
    word.initForwarded().setCorr(corr);
    word.getForwarded().setTask(task);
  };
}

MemberWorld::Word MemberWorld::forwardFailed(std::uint64_t corr, const char* code) {
  return [=](schema::ToMember::Builder word) {
    word.initForwarded().setCorr(corr);
    word.getForwarded().initFailed().setCode(code);
  };
}

WorldOptions MemberWorld::restarted() {
  WorldOptions options;
  options.incarnation = 2;
  options.rows = world.rows();
  return options;
}

std::string MemberWorld::cluster() {
  const auto info = [](schema::Request::Builder request) { request.setInfo(); };
  return text(world.reply(world.ask(info)).getInfo().getCluster());
}

}  // namespace qgpu::testing
