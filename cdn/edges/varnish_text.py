"""The text of the Varnish configuration, with gaps.

Knows: VCL 4.1 as Varnish 6.0 to 7.x reads it, the modules that come with Varnish, and xkey where it is asked for.
Must not know: any particular board.
"""

from __future__ import annotations

from cdn.edges.site import Text

VCL = Text(r'''vcl 4.1;

# Varnish in front of the leaderboard gateway, for Varnish 7 with ¤modules.
#
# Printed by
#     leaderboard-gateway edge varnish --config FILE
# Change the settings or the command's options, not this file. varnishd needs room for targets of 16 KiB, and speaks
# HTTP/2 if told to:
#     -p http_req_size=64k -p http_req_hdr_len=20k -p workspace_client=192k -p workspace_backend=192k
#     -p feature=+http2
# Its idle connections to the gateway end sooner than the gateway's own (-p backend_idle_timeout is 60 s, the
# gateway's ¤gateway_keepalive_s s), so that no request meets a closing one.
¤notes

import directors;
import std;
¤imports
# Whether the gateway lives decides where requests may go; whether it is ready decides how long stale answers serve.
probe alive { .url = "/livez";  .interval = 1s; .timeout = 1s; .window = 3; .threshold = 2; .initial = 3; }
probe ready { .url = "/readyz"; .interval = 1s; .timeout = 1s; .window = 3; .threshold = 2; .initial = 3; }

¤backends

acl purgers {
¤purgers
}

sub vcl_init {
    new gateway = directors.round_robin();
    new readiness = directors.round_robin();
¤members
}

sub vcl_recv {
    set req.backend_hint = gateway.backend();
    if (req.restarts > 0) {
        # From vcl_hit: what is stored is too old for a gateway that is well.
        set req.grace = 0s;
        return (hash);
    }
    unset req.http.X-LB-Args;
    unset req.http.X-LB-Query;
    unset req.http.X-LB-Kept;

    # RFC 9112 §3.2; Varnish would send the gateway a Host of its own. Two of them it refuses by itself.
    if (!req.http.Host && req.proto == "HTTP/1.1") {
        return (synth(400, "A request has exactly one Host field."));
    }
    # Several lines are one list; Varnish would look at one of them.
    std.collect(req.http.If-None-Match);

    if (req.method == "PURGE") {
        call purge_by_tag;
    }

    # The address of whoever connected, in place of what he wrote himself.
    set req.http.X-Forwarded-For = client.ip;
    unset req.http.Forwarded;
    # Ignored everywhere (Accept-Ranges: none).
    unset req.http.Range;

    # The built-in rules would pipe methods that they do not know, and pass whatever has a cookie.
    if (req.method != "GET" && req.method != "HEAD") {
        return (pass);
    }
    # A target that the gateway cannot read is its to refuse; what is left of it below would find an entry.
    if (req.url !~ "¤readable") {
        return (pass);
    }
    if (req.url !~ "^/v1/leaderboards(/[^/?#]+(/(top|ranks))?)?(\?[^#]*)?$" &&
        req.url !~ "^/(openapi\.json)?(\?[^#]*)?$") {
        return (pass);
    }

    # Known parameters only, so that unknown ones make no second entry. A name may be percent-encoded, letter by
    # letter. A known one given twice is the gateway's to refuse.
    set req.http.X-LB-Args = regsub(req.url, "^[^?]*\??", "");
    if (req.http.X-LB-Args ~ "¤repeated") {
        return (pass);
    }
    set req.http.X-LB-Query = "";
    if (req.url ~ "^/v1/leaderboards/[^/?]+/top(\?|$)") {
¤limit    }
    if (req.url ~ "^/v1/leaderboards/[^/?]+/ranks(\?|$)") {
¤from¤to    }
    if (req.url ~ "^/v1/leaderboards/") {
¤period    }
    set req.url = regsub(req.url, "\?.*$", "") + regsub(req.http.X-LB-Query, "^&", "?");
    unset req.http.X-LB-Args;
    unset req.http.X-LB-Query;

    # The answer is the same for everyone, whatever the request carries: who asks is not even passed on.
    unset req.http.Authorization;
    unset req.http.Cookie;
    # Ignored everywhere, too. Varnish would compare it to the moment of its own fetch, for want of a Last-Modified.
    unset req.http.If-Modified-Since;
    set req.http.X-LB-Kept = "1";
    return (hash);
}

# Tags come one or more, separated by spaces, in X-Purge-Tags.
sub purge_by_tag {
    if (client.ip !~ purgers¤secret) {
        return (synth(403, "Purging is not allowed."));
    }
    if (req.http.X-Purge-Tags !~ "^[A-Za-z0-9_~%:-]+( [A-Za-z0-9_~%:-]+)*$") {
        return (synth(400, "X-Purge-Tags is missing or malformed."));
    }
¤purge
    return (synth(200, "Purged"));
}

sub vcl_hash {
    # The target alone. The built-in rules add Host, and every spelling of it would be another entry.
    hash_data(req.url);
    return (lookup);
}

sub vcl_hit {
    # An answer is stored for as long as any stale window allows. While the gateway is ready only the shorter one
    # counts, stale-while-revalidate; past it somebody has to fetch, and the others wait for that one fetch.
    if (obj.ttl < 0s && obj.ttl + std.duration(obj.http.X-LB-Window, 0s) < 0s && std.healthy(readiness.backend())) {
        return (restart);
    }
    return (deliver);
}

sub vcl_backend_fetch {
    if (bereq.is_bgfetch && !std.healthy(readiness.backend())) {
        # The stale answer has been sent; the probe, not the crowd, finds out when the gateway is back.
        return (abandon);
    }
    unset bereq.http.X-LB-Kept;
    return (fetch);
}

sub vcl_backend_response {
    if (bereq.uncacheable) {
        return (deliver);
    }
    if (beresp.status >= 500) {
        if (bereq.is_bgfetch) {
            # What is stored is better than an error.
            return (abandon);
        }
        # Nobody keeps errors, says the gateway, and no client will. But if Varnish obeyed, those who wait for this
        # answer would go to a gateway in trouble one after the other, or all at once: so it holds them off for a
        # second. The id in it is the first client's own.
        unset beresp.http.X-Request-Id;
        call hold_off;
        return (deliver);
    }
¤tagged    call lives;
    if (beresp.http.Set-Cookie || beresp.http.Cache-Control ~ "(no-store|private)" || beresp.ttl <= 0s) {
        # Others do not wait for each other for the next second. (Two minutes of it are built in: a single answer
        # without a life would switch the cache off for so long.)
        set beresp.uncacheable = true;
        set beresp.ttl = 1s;
    }
    return (deliver);
}

# The edge's own field (RFC 9213), where there is one, instead of Cache-Control. Without the built-in rules after it,
# which take a short life, or an Age, for a reason not to keep an answer.
sub lives {
    set beresp.http.X-LB-Window = "0s";
    set beresp.grace = 0s;
    set beresp.keep = 0s;
    if (beresp.http.CDN-Cache-Control ~ "(^|[ ,])max-age=[0-9]+") {
        set beresp.ttl = std.duration(
            regsub(beresp.http.CDN-Cache-Control, "^(?:.*[ ,])?max-age=([0-9]+).*$", "\1s"), 0s);
    }
    if (beresp.http.CDN-Cache-Control ~ "stale-while-revalidate=[0-9]+") {
        set beresp.http.X-LB-Window =
            regsub(beresp.http.CDN-Cache-Control, "^.*stale-while-revalidate=([0-9]+).*$", "\1s");
        set beresp.grace = std.duration(beresp.http.X-LB-Window, 0s);
    }
    if (beresp.http.CDN-Cache-Control ~ "stale-if-error=[0-9]+") {
        set beresp.http.X-LB-Error =
            regsub(beresp.http.CDN-Cache-Control, "^.*stale-if-error=([0-9]+).*$", "\1s");
        if (std.duration(beresp.http.X-LB-Error, 0s) > beresp.grace) {
            set beresp.grace = std.duration(beresp.http.X-LB-Error, 0s);
        }
        unset beresp.http.X-LB-Error;
    }
}

sub hold_off {
    set beresp.ttl = 1s;
    set beresp.grace = 0s;
    set beresp.keep = 0s;
}

sub vcl_backend_error {
    if (bereq.is_bgfetch) {
        return (abandon);
    }
    set beresp.http.Content-Type = "application/problem+json";
    set beresp.http.Cache-Control = "no-store";
    set beresp.http.Access-Control-Allow-Origin = "*";
    set beresp.http.Access-Control-Expose-Headers = "¤exposed";
    set beresp.http.Retry-After = "1";
    set beresp.body = """¤bad_gateway""";
    if (!bereq.uncacheable) {
        call hold_off;
    }
    return (deliver);
}

sub vcl_deliver {
    # Varnish by itself compares If-None-Match as a whole. What counts is the part between the quotes, also in a list,
    # and "*" (RFC 9110 §13.1.2). A 304 has no fields about a content that is not there (§15.4.5).
    if (resp.status == 200 && resp.http.ETag && req.http.If-None-Match && (req.http.If-None-Match == "*" ||
        std.strstr(req.http.If-None-Match, regsub(resp.http.ETag, "^W/", "")))) {
        set resp.status = 304;
        set resp.reason = "Not Modified";
        unset resp.http.Content-Type;
        unset resp.http.Content-Encoding;
        unset resp.http.Content-Length;
    }
    if (!req.http.X-LB-Kept) {
        set resp.http.X-LB-Did = "varnish; fwd=bypass";
    } elsif (obj.hits > 0) {
        set resp.http.X-LB-Did = "varnish; hit";
    } else {
        set resp.http.X-LB-Did = "varnish; fwd=uri-miss";
    }
    # RFC 9211: what the gateway said when Varnish fetched the answer, then what Varnish did.
    if (resp.http.Cache-Status) {
        set resp.http.Cache-Status = resp.http.Cache-Status + ", " + resp.http.X-LB-Did;
    } else {
        set resp.http.Cache-Status = resp.http.X-LB-Did;
    }
    unset resp.http.X-LB-Did;
    unset resp.http.X-LB-Window;
    unset resp.http.X-Cache-Tags;
    unset resp.http.xkey;
    unset resp.http.X-Varnish;
    set resp.http.Accept-Ranges = "none";
    if (resp.http.Cache-Control ~ "no-store") {
        unset resp.http.Age;
        if (!resp.http.X-Request-Id) {
            call give_id;
        }
    }
    return (deliver);
}

# The client's own id if it is one that the gateway takes, else the one under which varnishlog knows the request.
sub give_id {
    set resp.http.X-Request-Id = req.xid;
    if (req.http.X-Request-Id ~ "^¤request_id$") {
        set resp.http.X-Request-Id = req.http.X-Request-Id;
    }
}

sub vcl_synth {
    set resp.http.Content-Type = "application/problem+json";
    set resp.http.Cache-Control = "no-store";
    set resp.http.Accept-Ranges = "none";
    set resp.http.Access-Control-Allow-Origin = "*";
    set resp.http.Access-Control-Expose-Headers = "¤exposed";
    call give_id;
    unset resp.http.X-Varnish;
    if (resp.status < 400) {
        set resp.http.Content-Type = "application/json";
        set resp.body = """{"status":"purged"}""";
        return (deliver);
    }
    # Three are given above; any other is Varnish's own, for a request that it found no room for.
    set req.http.X-LB-Problem = {""title":"Unavailable","code":"unavailable""};
    if (resp.status == 400) {
        set req.http.X-LB-Problem = {""title":"Bad request","code":"bad_request""};
    } elsif (resp.status == 403) {
        set req.http.X-LB-Problem = {""title":"Forbidden","code":"forbidden""};
    } elsif (resp.status == 500) {
        set req.http.X-LB-Problem = {""title":"Internal error","code":"internal_error""};
    } else {
        set resp.http.Retry-After = "1";
    }
    set resp.body = {"{"type":"about:blank","} + req.http.X-LB-Problem +
        {","detail":""} + resp.reason + {"","status":"} + resp.status + "}";
    return (deliver);
}
''')

HARD_PURGE = r"""    # A ban is hard: the answer is gone at once, and the next reader waits for one fetch. It compares
    # stored fields only, so that the ban lurker can work it off.
    if (!std.ban("obj.http.X-Cache-Tags ~ (^|\s)(" + regsuball(req.http.X-Purge-Tags, " ", "|") + ")(\s|$)")) {
        return (synth(500, "The tags cannot be purged."));
    }"""

SOFT_PURGE = """    # Soft: what is purged has no life left, but its stale windows, so that nobody waits for the fetch.
    set req.http.X-LB-Purged = xkey.softpurge(req.http.X-Purge-Tags);
    unset req.http.X-LB-Purged;"""

TAGGED = """    # By this field, in whatever answer is stored, the module finds it again.
    set beresp.http.xkey = beresp.http.X-Cache-Tags;
"""

BACKEND = Text("""\
backend gateway_¤number {
    .host = "¤host";
    .port = "¤port";
    .connect_timeout = 1s;
    .first_byte_timeout = ¤{timeout_s}s;
    .between_bytes_timeout = ¤{timeout_s}s;
    .probe = alive;
}
backend ready_¤number {
    .host = "¤host";
    .port = "¤port";
    .probe = ready;
}""")

PARAMETER = Text(r"""        if (req.http.X-LB-Args ~ "(^|&)¤pattern(=[^&]*)?(&|$)"¤but) {
            set req.http.X-LB-Query = req.http.X-LB-Query + "&¤name" +
                regsub(req.http.X-LB-Args, "^(?:.*&)?¤pattern(=[^&]*|)(?:&.*)?$", "\1");
        }
""")
