#include "services/etcd/etcd_client.h"

#include <algorithm>
#include <grpc/support/log.h>
#include <grpcpp/grpcpp.h>
#include <optional>
#include <utility>

#include "services/base/net/pem.h"
#include "services/etcd/protos/etcd_v3.grpc.pb.h"

namespace qgpu {
namespace {

namespace pb = etcdserverpb;

constexpr std::string_view kSecured = "https://";
constexpr std::string_view kScheme = "://";

gpr_timespec deadlineIn(Nanos time) {
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_nanos(time.value, GPR_TIMESPAN));
}

Nanos now() {
  const gpr_timespec at = gpr_now(GPR_CLOCK_MONOTONIC);
  return seconds(at.tv_sec) + Nanos(at.tv_nsec);
}

// What etcd says for certain, and what leaves open whether the call did something.
ErrorCode codeOf(const grpc::Status& status) {
  switch (status.error_code()) {
    case grpc::StatusCode::NOT_FOUND:
      return ErrorCode::NotFound;
    case grpc::StatusCode::INVALID_ARGUMENT:
      return ErrorCode::InvalidArgument;
    case grpc::StatusCode::PERMISSION_DENIED:
    case grpc::StatusCode::UNAUTHENTICATED:
      return ErrorCode::Denied;
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return ErrorCode::Overloaded;
    case grpc::StatusCode::UNIMPLEMENTED:
      return ErrorCode::Unsupported;
    default:
      return ErrorCode::Unavailable;
  }
}

Error errorOf(const std::string& endpoint, const char* what, const grpc::Status& status) {
  return fail(codeOf(status), "etcd at " + endpoint + ": " + what + ": " + status.error_message());
}

}  // namespace

struct EtcdClient::Channel {
  Channel(std::string url, const std::string& target, const auto& credentials,
          const grpc::ChannelArguments& arguments)
      : endpoint(std::move(url)),
        channel(grpc::CreateCustomChannel(target, credentials, arguments)) {
    kv = pb::KV::NewStub(channel);
    lease = pb::Lease::NewStub(channel);
    auth = pb::Auth::NewStub(channel);
  }
  // gRPC connects only while a thread waits for it, and where a call fails at once none does.
  bool connected(Nanos limit) {
    return channel->GetState(true) == GRPC_CHANNEL_READY ||
           channel->WaitForConnected(deadlineIn(limit));
  }
  const std::string endpoint;
  const std::shared_ptr<grpc::Channel> channel;  // as gRPC gives it
  std::unique_ptr<pb::KV::Stub> kv;
  std::unique_ptr<pb::Lease::Stub> lease;
  std::unique_ptr<pb::Auth::Stub> auth;
};

EtcdClient::EtcdClient(EtcdOptions options) : options_(std::move(options)) {}
EtcdClient::~EtcdClient() = default;

Result<std::unique_ptr<EtcdClient>> EtcdClient::open(EtcdOptions options) {
  gpr_set_log_function([](gpr_log_func_args*) {});  // each failure comes as a status, too
  const bool secured = options.endpoints.front().starts_with(kSecured);
  auto credentials = grpc::InsecureChannelCredentials();
  if (secured) {
    grpc::SslCredentialsOptions files;
    for (const auto& [path, to] : {std::pair{options.ca, &files.pem_root_certs},
                                   std::pair{options.cert, &files.pem_cert_chain},
                                   std::pair{options.key, &files.pem_private_key}}) {
      if (path.empty()) continue;
      auto text = readSmallFile("certificate of etcd", path);
      if (!text) return text.error();
      *to = std::move(*text);
    }
    credentials = grpc::SslCredentials(files);
  }
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 10'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5'000);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 2'000);  // that a connection may take
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL,
                   1);  // each client has connections of its own
  std::unique_ptr<EtcdClient> client(new EtcdClient(std::move(options)));
  for (const std::string& url : client->options_.endpoints) {
    const std::string target = url.substr(url.find(kScheme) + kScheme.size());
    client->channels_.push_back(std::make_unique<Channel>(url, target, credentials, arguments));
  }
  return client;
}

// One endpoint. After no answer the next call goes to the next one.
template <typename Call>
Status EtcdClient::once(const char* what, Nanos limit, Call&& call) {
  Channel& channel = *channels_[at_];
  const auto goOn = [this] { at_ = (at_ + 1) % channels_.size(); };
  if (!channel.connected(limit / 2)) {
    goOn();
    return fail(ErrorCode::Unavailable, "etcd at " + channel.endpoint + ": no connection");
  }
  if (!options_.user.empty() && token_.empty()) {
    if (Status in = signIn(channel); !in) return goOn(), in;
  }
  grpc::ClientContext context;
  context.set_deadline(deadlineIn(limit));
  if (!token_.empty()) context.AddMetadata("token", token_);
  const grpc::Status status = call(channel, context);
  if (status.ok()) return ok();
  Error error = errorOf(channel.endpoint, what, status);
  if (status.error_code() == grpc::StatusCode::UNAUTHENTICATED && !token_.empty()) {
    token_.clear();  // it is too old
    error.code = ErrorCode::Unavailable;
  } else if (error.code == ErrorCode::Unavailable) {
    goOn();
  }
  return error;
}

template <typename Call>
Status EtcdClient::each(const char* what, Call&& call) {
  const Nanos end = now() + options_.callLimit;
  const Nanos part = channels_.size() == 1 ? options_.callLimit : options_.callLimit / 2;
  Status last = fail(ErrorCode::Unavailable, "etcd does not answer");
  for (std::size_t tried = 0; tried < 2 * channels_.size(); ++tried) {
    const Nanos left = end - now();
    if (left <= Nanos(0)) break;
    last = once(what, std::min(left, part), call);
    if (last || last.error().code != ErrorCode::Unavailable) return last;
  }
  return last;
}

Status EtcdClient::signIn(Channel& channel) {
  pb::AuthenticateRequest request;
  request.set_name(options_.user);
  request.set_password(options_.password);
  pb::AuthenticateResponse response;
  grpc::ClientContext context;
  context.set_deadline(deadlineIn(options_.callLimit / 2));
  const grpc::Status status = channel.auth->Authenticate(&context, request, &response);
  if (!status.ok()) return errorOf(channel.endpoint, "sign in", status);
  token_ = response.token();
  return ok();
}

Result<KvTxnAnswer> EtcdClient::txn(const KvTxn& txn) {
  pb::TxnRequest request;
  for (const KvCondition& condition : txn.when) {
    pb::Compare& compare = *request.add_compare();
    compare.set_key(condition.key);
    if (condition.of == KvCondition::Of::Created) {
      compare.set_target(pb::Compare::CREATE);
      compare.set_create_revision(condition.revision);
    } else {
      compare.set_target(pb::Compare::MOD);
      compare.set_mod_revision(condition.revision);
    }
  }
  for (const KvChange& change : txn.then) {
    pb::RequestOp& op = *request.add_success();
    if (change.does == KvChange::Does::Put) {
      pb::PutRequest& put = *op.mutable_request_put();
      put.set_key(change.key);
      put.set_value(change.value);
      put.set_lease(change.lease);
    } else {
      op.mutable_request_delete_range()->set_key(change.key);
      op.mutable_request_delete_range()->set_range_end(change.end);
    }
  }
  pb::TxnResponse response;
  // Of one endpoint alone: one that did not answer may still do it, and another would say then that
  // its conditions don't hold. Who asks again knows that it is again.
  const Status done = once("a transaction", options_.callLimit,
                           [&](Channel& channel, grpc::ClientContext& context) {
                             return channel.kv->Txn(&context, request, &response);
                           });
  if (!done) return done.error();
  return KvTxnAnswer{response.succeeded(), response.header().revision()};
}

Result<std::vector<KvPair>> EtcdClient::list(const std::string& from, const std::string& end,
                                             std::size_t limit) {
  pb::RangeRequest request;
  request.set_key(from);
  request.set_range_end(end);
  request.set_limit(static_cast<std::int64_t>(limit));
  pb::RangeResponse response;
  const Status done = each("a list", [&](Channel& channel, grpc::ClientContext& context) {
    return channel.kv->Range(&context, request, &response);
  });
  if (!done) return done.error();
  std::vector<KvPair> pairs;
  pairs.reserve(static_cast<std::size_t>(response.kvs_size()));
  for (pb::KeyValue& pair : *response.mutable_kvs()) {
    pairs.push_back({std::move(*pair.mutable_key()), std::move(*pair.mutable_value()),
                     pair.create_revision(), pair.mod_revision(), pair.lease()});
  }
  return pairs;
}

Result<std::int64_t> EtcdClient::grant(Nanos ttl) {
  pb::LeaseGrantRequest request;
  request.set_ttl(std::max<std::int64_t>(ttl / seconds(1), 1));
  pb::LeaseGrantResponse response;
  const Status done = each("a lease", [&](Channel& channel, grpc::ClientContext& context) {
    return channel.lease->LeaseGrant(&context, request, &response);
  });
  if (!done) return done.error();
  if (!response.error().empty()) return fail(ErrorCode::Unavailable, response.error());
  return response.id();
}

Status EtcdClient::keepAlive(std::int64_t lease) {
  pb::LeaseKeepAliveRequest request;
  request.set_id(lease);
  pb::LeaseKeepAliveResponse response;
  const Status done = each("to keep a lease", [&](Channel& channel, grpc::ClientContext& context) {
    const auto stream = channel.lease->LeaseKeepAlive(&context);
    const bool told = stream->Write(request) && stream->WritesDone() && stream->Read(&response);
    const grpc::Status status = stream->Finish();
    return told ? grpc::Status::OK : status;
  });
  if (!done) return done;
  if (response.ttl() <= 0) return fail(ErrorCode::NotFound, "etcd: the lease is over");
  return ok();
}

Status EtcdClient::revoke(std::int64_t lease) {
  pb::LeaseRevokeRequest request;
  request.set_id(lease);
  pb::LeaseRevokeResponse response;
  return each("to give a lease back", [&](Channel& channel, grpc::ClientContext& context) {
    return channel.lease->LeaseRevoke(&context, request, &response);
  });
}

}  // namespace qgpu
