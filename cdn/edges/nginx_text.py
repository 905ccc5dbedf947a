"""The text of nginx.conf, with gaps.

Knows: nginx 1.22 and its traps, each said where it is avoided.
Must not know: any particular board.
"""

from __future__ import annotations

from cdn.edges.site import Text

HEAD = Text("""\
# nginx in front of the leaderboard gateway, for nginx 1.22 and later without extra modules.
#
# Printed by
#     leaderboard-gateway edge nginx --config FILE
# Change the settings or the command's options, not this file.
¤notes

worker_processes auto;
pid              ¤state_dir/nginx.pid;
error_log        stderr warn;
pcre_jit         on;

events {
    worker_connections 8192;
}

http {
    server_tokens off;
    default_type  application/octet-stream;
    # An answer is a few KiB: reading it is cheaper than the further system calls of sending it as a file.
    sendfile      off;
    tcp_nodelay   on;

    # Everything that nginx writes lies in one folder, which may be a tmpfs.
    client_body_temp_path ¤state_dir/body;
    proxy_temp_path       ¤state_dir/proxy;
    fastcgi_temp_path     ¤state_dir/fastcgi;
    uwsgi_temp_path       ¤state_dir/uwsgi;
    scgi_temp_path        ¤state_dir/scgi;

    # An entry that nobody asked for is dropped after the longest time for which any board lets it be served.
    proxy_cache_path ¤state_dir/leaderboards levels=1:2 keys_zone=leaderboards:16m
                     inactive=¤{inactive_s}s max_size=512m use_temp_path=off;
    # Cached answers are files: keep the busy ones open. nginx notices by itself when one is replaced.
    open_file_cache          max=10000 inactive=30s;
    open_file_cache_valid    30s;
    open_file_cache_min_uses 2;

    log_format leaderboards escape=json
        '{"time":"$time_iso8601","client":"$remote_addr","method":"$request_method","target":"$request_uri",'
        '"status":$status,"cache":"$upstream_cache_status","bytes":$body_bytes_sent,"seconds":$request_time,'
        '"gateway_seconds":"$upstream_response_time","id":"$lb_logged_id","agent":"$http_user_agent"}';

    upstream gateway {
        zone gateway 64k;
¤servers
        # Idle connections, for each worker of nginx. They count for nothing in the gateway, which limits reads under
        # way and never connections. nginx gives one up before the gateway does (¤gateway_keepalive_s s): the other
        # way round, a request now and then meets a closing connection and ends as a 502.
        keepalive          64;
        keepalive_timeout  ¤{upstream_keepalive_s}s;
        keepalive_requests 10000;
    }
""")

KEYS = Text(r"""
    # ---- What may be kept, and under which key ------------------------------------------------------------------
    #
    # All of it is read from $request_uri, the bytes that the client sent. $uri is decoded and normalised: in it
    # "team%2Fann" is two segments, "x%2F..%2Fy" is "y", and two different members could share an entry. Locations are
    # found by $uri, so nothing is decided by them either: one takes whatever a client asks for.

    # Maps are evaluated once for a request, when first needed; the commonest case comes first, and the one expression
    # that it is found by says all at once: a hit is answered in 10 microseconds, of which each costs a part. A target
    # that the gateway cannot read is the gateway's to refuse: an entry's key does not hold all of one, so it would be
    # found all the same.
    map $request_uri $lb_route {
        default "";
        "~^(?=¤readable)(?<lb_raw_path>/v1/leaderboards/[^/?#]+/top)(?:\?[^#]*)?$"   "top";
        "~^(?=¤readable)(?<lb_raw_path>/v1/leaderboards/[^/?#]+/ranks)(?:\?[^#]*)?$" "ranks";
        "~^(?=¤readable)(?<lb_raw_path>/v1/leaderboards/[^/?#]+)(?:\?[^#]*)?$"       "board";
        "~^(?=¤readable)(?<lb_raw_path>/v1/leaderboards)(?:\?[^#]*)?$"               "catalogue";
        "~^(?=¤readable)(?<lb_raw_path>/(?:openapi\.json)?)(?:\?[^#]*)?$"            "page";
        "~^/(?:livez|readyz)(?:\?|$)" "health";
    }
    map $lb_route $lb_path { default $lb_raw_path; "" ""; health ""; }

    # Health is open to load balancers: not counted, not logged.
    map $lb_route $lb_logged { default 1; health 0; }

    # Known parameters only, so that unknown ones make no second entry, and case by case as the gateway reads them
    # ($arg_limit would take "LIMIT" too). A name may be percent-encoded, letter by letter.
    map $args $lb_limit {
        default "";
        ""      "";
        "~(?:^|&)¤limit=100(?:&|$)" "";
        "~(?:^|&)¤limit(?<lb_limit_value>=[^&]*|)(?:&|$)" "&limit$lb_limit_value";
    }
    map $args $lb_from {
        default "";
        ""      "";
        "~(?:^|&)¤from(?<lb_from_value>=[^&]*|)(?:&|$)" "&from$lb_from_value";
    }
    map $args $lb_to {
        default "";
        ""      "";
        "~(?:^|&)¤to(?<lb_to_value>=[^&]*|)(?:&|$)" "&to$lb_to_value";
    }
    map $args $lb_period {
        default "";
        ""      "";
        "~(?:^|&)¤period(?<lb_period_value>=[^&]*|)(?:&|$)" "&period$lb_period_value";
    }
    map $lb_route $lb_query {
        default "";
        "board" $lb_period;
        "top"   $lb_limit$lb_period;
        "ranks" $lb_from$lb_to$lb_period;
    }
    # A known parameter given twice is the gateway's to refuse.
    map $args $lb_repeated {
        default "";
        ""      "";
        "~¤repeated" "repeated";
    }

    # One of three codings instead of the client's spelling of them: "gzip, deflate", "gzip,deflate, br;q=0.1" and so
    # on are one entry. Preferences between codings are not weighed, refusals (q=0) are obeyed.
    map $http_accept_encoding $lb_coding {
        default "identity";
        ""      "identity";
        # Without any q: the smallest form.
        "~*^[^;]*(?<![^ \t,])br(?![^ \t,])[^;]*$"   "br";
        "~*^[^;]*(?<![^ \t,])gzip(?![^ \t,])[^;]*$" "gzip";
        # With some q: gzip, then br, where they are not refused.
        "~*(?<![^ \t,])gzip[ \t]*(?:,|$|;[ \t]*q=(?:1|0\.0{0,2}[1-9]))" "gzip";
        "~*(?<![^ \t,])br[ \t]*(?:,|$|;[ \t]*q=(?:1|0\.0{0,2}[1-9]))"   "br";
        # The plain form is refused and no other is named: the gateway's to answer.
        "~*(?<![^ \t,])(?:identity|\*)[ \t]*;[ \t]*q=0(?:\.0*)?[ \t]*(?:,|$)" "other";
    }

    # If-Match and If-Unmodified-Since mean nothing to the gateway, which only reads. nginx would answer them with a 412
    # from what it keeps, but leaves alone what it only passes on. (Without a value they cannot be told from none.)
    map "$lb_route:$lb_repeated$http_if_match$http_if_unmodified_since:$lb_coding" $lb_cache {
        default off;
¤{kept}    }

    # A cacheable answer is the same for everyone, whatever the request carries: who asks is not even passed on.
    map $lb_cache $lb_accept_encoding { off $http_accept_encoding; default $lb_coding; }
    map $lb_cache $lb_authorization   { off $http_authorization;   default ""; }
    map $lb_cache $lb_cookie          { off $http_cookie;          default ""; }

    # The client's id if it is one that the gateway takes, else a new one: the gateway's log, this one and the answer
    # say the same. What is kept is everyone's and has none.
    map $http_x_request_id $lb_request_id {
        default $request_id;
        "~^¤request_id$" $http_x_request_id;
    }
    map $upstream_cache_status $lb_logged_id {
        default  $lb_request_id;
        HIT      "";
        STALE    "";
        UPDATING "";
    }

    # Cache-Status (RFC 9211): what the gateway said when nginx fetched the answer, then what nginx did.
    map $upstream_cache_status $lb_edge_status {
        default  "nginx; fwd=bypass";
        HIT      "nginx; hit";
        MISS     "nginx; fwd=uri-miss";
        EXPIRED  "nginx; fwd=stale";
        STALE    "nginx; hit; detail=stale";
        UPDATING "nginx; hit; detail=updating";
    }
    map $upstream_http_cache_status $lb_cache_status {
        default "$upstream_http_cache_status, $lb_edge_status";
        ""      $lb_edge_status;
    }

    # What some of nginx's own errors say beside the rest; an empty field is not sent.
    map $status $lb_allow       { default ""; 405 "GET, HEAD, OPTIONS"; }
    map $status $lb_retry_after { default ""; ¤{retried}}
""")

SERVER = Text(r"""
    server {
¤listeners
        server_name _;

        # A target may have 16 KiB; the gateway says so, up to the size of one buffer, nginx beyond.
        large_client_header_buffers 4 20k;
        client_max_body_size        1k;
        client_body_buffer_size     1k;
        client_header_timeout       10s;
        client_body_timeout         10s;
        send_timeout                30s;
        keepalive_timeout           65s;
        keepalive_requests          10000;
        reset_timedout_connection   on;

        access_log ¤access_log leaderboards buffer=64k flush=1s if=$lb_logged;

        # Slashes are the gateway's: "//" is an empty segment, not a slash.
        merge_slashes off;
        # The gateway has made every form once already.
        gzip   off;
        gunzip off;
        # Otherwise a kept answer is cut to the Range asked for and sent as a 206.
        max_ranges 0;

        # ---- Towards the gateway ---------------------------------------------------------------------------------
        proxy_http_version      1.1;
        proxy_set_header        Connection        "";
        proxy_set_header        Host              $host;
        proxy_set_header        Accept-Encoding   $lb_accept_encoding;
        proxy_set_header        Authorization     $lb_authorization;
        proxy_set_header        Cookie            $lb_cookie;
        proxy_set_header        X-Request-Id      $lb_request_id;
        # The address of whoever connected, in place of what he wrote himself.
        proxy_set_header        X-Forwarded-For   $remote_addr;
        proxy_set_header        X-Real-IP         $remote_addr;
        proxy_set_header        X-Forwarded-Proto $scheme;
        proxy_set_header        Forwarded         "";
        proxy_set_header        If-Match          "";
        proxy_set_header        If-Unmodified-Since "";
        proxy_set_header        Content-Length    "";
        proxy_pass_request_body off;
        proxy_connect_timeout   1s;
        proxy_send_timeout      ¤{read_timeout_s}s;
        proxy_read_timeout      ¤{read_timeout_s}s;
        proxy_next_upstream     error timeout;
        proxy_next_upstream_tries   2;
        proxy_next_upstream_timeout ¤{read_timeout_s}s;
        # The key is written beside the answer's header: a buffer must have room for the longest target.
        proxy_buffer_size       32k;
        proxy_buffers           8 32k;

        # ---- The cache -------------------------------------------------------------------------------------------
        proxy_cache         $lb_cache;
        proxy_cache_key     $lb_path?$lb_query:$lb_coding;
        proxy_cache_methods GET HEAD;
        # The key holds the coding. Vary would compare the client's spelling of it: five spellings, five reads.
        proxy_ignore_headers Vary;
        # There is no proxy_cache_valid: what the gateway gives no life to is not kept, errors least of all. Lives come
        # from X-Accel-Expires (the edge's), stale windows from Cache-Control: "updating" and "error" are not said
        # here, since they would know no limit, and a board that nobody read for an hour would be an hour old. Only
        # for a gateway that does answer, with an error, nginx does not look at stale-if-error: so that is said. (A
        # 500 is shown: it means that the board itself is broken.)
        proxy_cache_use_stale http_502 http_503 http_504;
        # In the stale window nobody waits: one request fetches behind an answer that is sent at once. The next
        # request on that same HTTP/1.1 connection waits for the fetch: for what the gateway may take, ¤budget_s s of
        # Redis at the most and some milliseconds as a rule. HTTP/2 streams do not wait for each other.
        proxy_cache_background_update on;
        # One fetch for an answer that is not there at all. nginx wakes nobody when it has come: those who wait look
        # again after this time, at most every half second. So it is short: a usual fetch takes less, and after an
        # unusual one they go to the gateway, where they join the same flight.
        proxy_cache_lock         on;
        proxy_cache_lock_timeout ¤{lock_timeout_ms}ms;
        proxy_cache_lock_age     ¤{read_timeout_s}s;
        # A fetch belongs to nobody: its first client may leave.
        proxy_ignore_client_abort on;
        # No conditional fetches: nginx keeps the old fields with a 304, and Leaderboard-As-Of would stand still.
        proxy_cache_revalidate   off;

        proxy_hide_header Cache-Status;
        proxy_hide_header Accept-Ranges;
        add_header        Cache-Status  $lb_cache_status always;
        add_header        Accept-Ranges none always;

        # Metrics are on the gateway's admin address, which nothing here leads to.
        location / {
¤limit            proxy_pass http://gateway;
        }

        # ---- nginx's own errors, in the gateway's form -----------------------------------------------------------
        # No client's target leads there, whatever is encoded in it: a normalised one has no segment ".". (Named
        # locations would not do: nginx has no way to them from a request line that it could not read.)
¤errors
        location ¤problem_path {
            internal;
            default_type application/problem+json;
            add_header Cache-Control no-store always;
            add_header Accept-Ranges none always;
            add_header Access-Control-Allow-Origin * always;
            add_header Access-Control-Expose-Headers "¤exposed" always;
            add_header X-Request-Id $lb_request_id always;
            add_header Allow $lb_allow always;
            add_header Retry-After $lb_retry_after always;
¤problems        }
    }
}
""")

RATE = Text(r"""
    # ---- One client's share -------------------------------------------------------------------------------------
    # By the address that connects. This machine's own requests (probes, load tests) and health checks are not
    # counted: an empty key.
    geo $lb_own {
        default     0;
        127.0.0.0/8 1;
        ::1         1;
    }
    map $lb_own$lb_route $lb_client {
        default $binary_remote_addr;
        0health "";
¤{own}    }
    limit_req_zone      $lb_client zone=clients:16m rate=¤{rate}r/s;
    limit_req_status    429;
    limit_req_log_level notice;
""")
