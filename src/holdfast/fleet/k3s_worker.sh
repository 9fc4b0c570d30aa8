#!/usr/bin/env bash
# Makes a new machine a worker of a K3s cluster. EC2 passes it as user data, and cloud-init runs it as root.
#
# The script is the same for every cluster, except for SETTINGS: a JSON object in base64, read only by the Python program
# below. No part of it becomes shell code or a command's argument.
#
# Secrets (the join token, the role's credentials, the metadata session) pass through shell variables and pipes, never
# through arguments, environment variables or the log. Only the token is kept, in a file that only root can read.
#
# Errors go to stderr, which cloud-init copies to the journal and to the machine's console. After an error the machine
# does not join the cluster, and Holdfast terminates it after JOIN_TIMEOUT_SEC. A second run changes nothing.
#
# The first argument is a directory to use instead of /, for tests; cloud-init passes none.

set -euo pipefail
shopt -s inherit_errexit
umask 077

readonly SETTINGS='e30='
readonly ROOT="${1:-}"
readonly K3S="$ROOT/usr/local/bin/k3s"
readonly METADATA='http://169.254.169.254/latest'
readonly TOKEN_TRIES=18 TOKEN_WAIT_SECONDS=10

# Python, because cloud-init is written in it: where user data runs, there is python3 (3.9 or later). jq and the AWS CLI
# may be missing. curl could sign the request, but Ubuntu 22.04's version leaves the session token and the target out of
# the signature.
read -r -d '' PROGRAM <<'END' || true
import base64, datetime, hashlib, hmac, json, os, re, sys

settings = json.loads(base64.b64decode(os.environ["HOLDFAST_SETTINGS"]))


def stop(why):
    sys.exit("holdfast: " + why)


def text(value, name, pattern):
    if not isinstance(value, str) or not re.fullmatch(pattern, value):
        stop("the metadata service returned no valid " + name)
    return value


def read(what):
    try:
        answer = json.load(sys.stdin)
    except ValueError:
        stop(what + " did not answer in JSON")
    return answer if isinstance(answer, dict) else {}


def quoted(value):
    return json.dumps(value)  # in double quotes, curl understands JSON's escapes for ASCII text


def binary():
    """Two lines: the checksum and curl's download option. Either may be empty."""
    arch, sums, urls = sys.argv[2], settings["sha256"], settings["urls"]
    if (sums or urls) and arch not in sums:
        stop("this machine is " + arch + ", but K3S_SHA256_" + arch.upper() + " is not set")
    print(sums.get(arch, ""))
    print("url = " + quoted(urls[arch]) if urls else "")


def ssm():
    region = text(os.environ["REGION"], "region", "[a-z0-9-]{1,63}")
    return region, "ssm." + region + "." + text(os.environ["DOMAIN"], "domain", "[a-z0-9.-]{1,100}")


def options():
    """K3s options as JSON, which is also YAML."""
    region = ssm()[0]  # needed later as well; fail early
    document = read("the metadata service")
    machine = text(document.get("instanceId"), "instance id", "i-[0-9a-f]{8,17}")
    zone = text(document.get("availabilityZone"), "zone", "[a-z0-9-]{1,63}")
    address = text(document.get("privateIp"), "private address", "[0-9]{1,3}([.][0-9]{1,3}){3}")
    market = "spot" if os.environ["LIFECYCLE"] == "spot" else "on-demand"
    labels = settings["labels"] + [  # the last of two equal keys wins
        "holdfast.dev/instance-id=" + machine,
        "holdfast.dev/lifecycle=" + market,
        "topology.kubernetes.io/region=" + region,
        "topology.kubernetes.io/zone=" + zone,
    ]
    # Storage drivers and cloud controllers find the machine by it. K3s' own, k3s://NAME, means nothing to them.
    kubelet = ["provider-id=aws:///" + zone + "/" + machine]
    found = {"node-name": machine, "node-ip": address, "node-label+": labels, "kubelet-arg+": kubelet}
    print(json.dumps({"server": settings["server"], **found}))


def request():
    """A signed SSM request (AWS Signature Version 4) as options for curl; reads the role's credentials from stdin."""
    keys = read("the metadata service")
    region, host = ssm()
    body = json.dumps({"Name": settings["token_parameter"], "WithDecryption": True})
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    headers = {
        "content-type": "application/x-amz-json-1.1",
        "host": host,
        "x-amz-date": now,
        "x-amz-security-token": text(keys.get("Token"), "session token", "[!-~]+"),
        "x-amz-target": "AmazonSSM.GetParameter",
    }
    names = ";".join(headers)
    lines = [name + ":" + value for name, value in headers.items()]
    canonical = "\n".join(["POST", "/", "", *lines, "", names, hashlib.sha256(body.encode()).hexdigest()])
    scope = now[:8] + "/" + region + "/ssm/aws4_request"
    signed = "\n".join(["AWS4-HMAC-SHA256", now, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = ("AWS4" + text(keys.get("SecretAccessKey"), "secret key", "[!-~]+")).encode()
    for part in scope.split("/"):
        key = hmac.new(key, part.encode(), "sha256").digest()
    signature = hmac.new(key, signed.encode(), "sha256").hexdigest()
    credential = text(keys.get("AccessKeyId"), "key id", "[!-~]+") + "/" + scope
    headers["authorization"] = (
        "AWS4-HMAC-SHA256 Credential=" + credential + ", SignedHeaders=" + names + ", Signature=" + signature
    )
    print("url = " + quoted("https://" + host + "/"))
    for name, value in headers.items():
        print("header = " + quoted(name + ": " + value))
    print("data-raw = " + quoted(body))


def token():
    answer = read("SSM")
    if "Parameter" not in answer:
        kind = str(answer.get("__type", "no reason")).rpartition("#")[2]
        stop("SSM refuses: " + kind + ": " + ascii(answer.get("message", answer.get("Message", ""))))
    value = answer["Parameter"]["Value"].strip()
    if not re.fullmatch("K10[0-9a-f]{64}::[!-~]+", value):
        stop("the SSM parameter has no long K3s token (K10...), which this machine needs to verify the server")
    print(value)


{"binary": binary, "options": options, "request": request, "token": token}[sys.argv[1]]()
END

# Type, limits and the image's environment files (for a proxy) are those of K3s' own unit. The taint keeps pods away until Holdfast has verified the node. It is set
# here and not in the options, so that no file in the image can override it.
read -r -d '' UNIT <<'END' || true
[Unit]
Description=K3s worker, joined by Holdfast
Wants=network-online.target
After=network-online.target

[Service]
Type=exec
EnvironmentFile=-/etc/default/k3s-agent
EnvironmentFile=-/etc/sysconfig/k3s-agent
ExecStartPre=-/sbin/modprobe br_netfilter
ExecStartPre=-/sbin/modprobe overlay
ExecStart=/usr/local/bin/k3s agent --token-file=/etc/holdfast/k3s-token --node-taint=holdfast.dev/unverified=true:NoSchedule
KillMode=process
Delegate=yes
LimitNOFILE=1048576
LimitNPROC=infinity
LimitCORE=infinity
TasksMax=infinity
TimeoutStartSec=0
Restart=always
RestartSec=5s

[Install]
WantedBy=multi-user.target
END

say() {
  printf 'holdfast: %s\n' "$*" >&2
}

fail() {
  say "$*"
  exit 1
}

python() {
  HOLDFAST_SETTINGS="$SETTINGS" LIFECYCLE="$lifecycle" REGION="$region" DOMAIN="$domain" \
    python3 -I -S -c "$PROGRAM" "$@"
}

fetch() {
  curl --disable --silent --show-error --globoff --connect-timeout 5 --retry-all-errors "$@"
}

# The metadata service, version 2 only: every request needs a session.
metadata() {
  printf 'X-aws-ec2-metadata-token: %s\n' "$session" |
    fetch --fail --noproxy '*' --max-time 5 --retry 10 --retry-delay 2 --header @- "$METADATA/$1" || {
    say "the metadata service did not return $1"
    return 1
  }
}

metadata_session() {
  fetch --fail --noproxy '*' --max-time 5 --retry 10 --retry-delay 2 \
    --request PUT --header 'X-aws-ec2-metadata-token-ttl-seconds: 3600' "$METADATA/api/token"
}

# Write a file atomically. First remove what an earlier run may have left, which might have a wider mode.
put_file() {
  rm -f "$1.new"
  printf '%s\n' "$2" >"$1.new"
  mv -f "$1.new" "$1"
}

architecture() {
  local machine
  machine="$(uname -m)"
  case "$machine" in
    x86_64) echo amd64 ;;
    aarch64) echo arm64 ;;
    *) fail "K3s does not support $machine" ;;
  esac
}

is_intact() {
  printf '%s  %s\n' "$1" "$2" | sha256sum --check --status
}

install_k3s() {
  local arch binary sum download
  arch="$(architecture)"
  binary="$(python binary "$arch")"
  { read -r sum && read -r download; } <<<"$binary"$'\n'
  if [[ -z "$download" ]]; then
    [[ -x "$K3S" ]] || fail "the image has no K3s (/usr/local/bin/k3s), and K3S_BINARY_URL is not set"
    [[ -z "$sum" ]] || is_intact "$sum" "$K3S" || fail "the checksum of the image's /usr/local/bin/k3s does not match"
    return
  fi
  if [[ -x "$K3S" ]] && is_intact "$sum" "$K3S"; then
    return
  fi
  say "downloading K3s for $arch"
  # Over 60 MB: abort when the download stalls, not when it is merely slow.
  printf '%s\n' "$download" |
    fetch --fail --location --proto '=https' --tlsv1.2 --speed-limit 10000 --speed-time 30 --max-time 300 \
      --retry 5 --retry-delay 5 --output "$K3S.new" --config - || fail "could not download K3s"
  if ! is_intact "$sum" "$K3S.new"; then
    rm -f "$K3S.new"
    fail "the checksum of the downloaded K3s does not match; the file was deleted"
  fi
  chmod 0755 "$K3S.new"
  mv -f "$K3S.new" "$K3S"
}

join_token() {
  local role keys signed answer
  role="$(metadata meta-data/iam/security-credentials/)" || return
  keys="$(metadata "meta-data/iam/security-credentials/$role")" || return
  signed="$(printf '%s' "$keys" | python request)" || return
  answer="$(printf '%s' "$signed" | fetch --proto '=https' --tlsv1.2 --max-time 20 --retry 2 --config -)" || return
  printf '%s' "$answer" | python token
}

# A new role or parameter may take a while to be visible everywhere.
join_token_with_retries() {
  local tries
  for ((tries = TOKEN_TRIES - 1; tries >= 0; tries--)); do
    if join_token; then
      return
    fi
    say "no join token yet; tries left: $tries"
    if ((tries > 0)); then
      sleep "$TOKEN_WAIT_SECONDS"
    fi
  done
  fail "no join token: allow the machine's role to read the parameter named by K3S_TOKEN_PARAMETER"
}

report_failure() {
  local status=$?
  if ((status != 0)); then
    say "this machine does not join the cluster (exit code $status); Holdfast will terminate it"
  fi
}

main() {
  trap report_failure EXIT
  local program
  for program in curl python3 sha256sum systemctl; do
    command -v "$program" >/dev/null || fail "the image has no $program"
  done

  local session='' lifecycle='' region='' domain='' document options token
  session="$(metadata_session)" || fail "the metadata service returned no session (IMDSv2)"
  document="$(metadata dynamic/instance-identity/document)"
  lifecycle="$(metadata meta-data/instance-life-cycle)"
  region="$(metadata meta-data/placement/region)"
  domain="$(metadata meta-data/services/domain)"
  options="$(printf '%s' "$document" | python options)"

  install_k3s
  token="$(join_token_with_retries)"

  install -d -m 0700 "$ROOT/etc/holdfast"
  install -d -m 0755 "$ROOT/etc/rancher/k3s/config.yaml.d"
  put_file "$ROOT/etc/holdfast/k3s-token" "$token"
  put_file "$ROOT/etc/rancher/k3s/config.yaml.d/90-holdfast.yaml" "$options"
  (
    umask 022
    put_file "$ROOT/etc/systemd/system/k3s-agent.service" "$UNIT"
  )
  systemctl daemon-reload
  systemctl enable --now k3s-agent.service
  say "K3s is running; the node can join"
}

main
