#pragma once
// What a daemon serves to browsers over HTTP: a page, and below /api/ each command of the daemon's
// table that only reads (commands.h). `GET /api/trace?sim-0%2017` is the line `trace sim-0 17` of
// the admin socket, asked by somebody who may change nothing and answered by the same handler, so
// that JSON is rendered in one place. There is no other method and no cookie.
//
// Who may come in: on loopback every user of the machine, who may read on the sockets too; from
// elsewhere whoever has the token or a certificate, and nobody without. A page of another site that
// a user has open gets nothing (CSRF, DNS rebinding): the name in Host must be loopback's where
// nothing else is asked for, and what a browser says of the asking page must be this one. What is
// asked has a bounded cost (C7): HttpServer's limits, and those of a line.

#include <optional>
#include <string>
#include <vector>

#include "services/api/commands/command_handler.h"
#include "services/base/net/http_server.h"
#include "services/web/web_options.h"

namespace qgpu {

// Who is let in. Both may be asked for.
struct WebAccess {
  std::string token;          // empty: none is asked for
  bool certificates = false;  // the connection asks for them
};

// What --web and its companions gave: nothing is served yet.
struct WebOpened {
  TcpListener listener;
  WebAccess access;
};

// Nothing where --web was not given. Denied for an address beyond loopback without token and
// certificates; InvalidArgument for a token that is no secret.
Result<std::optional<WebOpened>> openWeb(const WebOptions& options);

// The routes of an HttpServer, each of which keeps the rules above. `handler` outlives the routes;
// `side` is its daemon's.
std::vector<HttpRoute> webRoutes(AdminHandler& handler, Side side, WebAccess access);

}  // namespace qgpu
