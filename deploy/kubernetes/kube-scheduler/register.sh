#!/bin/sh
# Tells the kube-scheduler of this control-plane machine about the extender, by its static pod as
# kubeadm writes it: a configuration beside it, one flag, one mount. kubelet then starts it anew.
# Where the manifest is not like that, nothing is changed and a person is told what to do.
# A second run changes nothing; --remove puts the manifest back as it was without the extender.
set -eu

HERE=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
MANIFEST=/etc/kubernetes/manifests/kube-scheduler.yaml
FOLDER=/etc/kubernetes/qgpu
MARK='# qgpu'          # at the end of each line that is ours
SECRET=qgpu-scheduler-extender     # of install.sh
KUBECTL=${KUBECTL:-kubectl}
act=add dry=no where=here

usage() {
  cat <<'TEXT'
usage: register.sh [--remote] [--manifest FILE] [--folder DIR] [--remove] [--dry-run]

  --manifest FILE   the static pod (/etc/kubernetes/manifests/kube-scheduler.yaml)
  --folder DIR      where the configuration is put, as kube-scheduler sees it (/etc/kubernetes/qgpu)
  --remote          qgpu-scheduler may run on another machine: asks its Service, over TLS, with the
                    certificates that install.sh made; needs kubectl (KUBECTL names another)
  --remove          takes out what an earlier run put in
  --dry-run         says what would be changed

exit status: 0 done, or nothing to do; 2 wrong use; 3 a person must do it, and how
TEXT
}

say() { echo "register.sh: $*"; }
by_hand() {
  say "$1; nothing was changed." >&2
  cat >&2 <<TEXT
To register the extender by hand, on every machine where a kube-scheduler runs:
  1. before 1.19: start kube-scheduler with --policy-config-file=FILE and
     --use-legacy-policy-config=true, where FILE is a copy of
       $HERE/policy.json
     since 1.19: start it with --config=FILE, where FILE is a copy of config-v1beta1.yaml (1.19 to
     1.21), config-v1beta2.yaml (1.22), config-v1beta3.yaml (1.23, 1.24) or config-v1.yaml (1.25
     and later) from that folder; where it has a --config already, put their "extenders" into it.
  2. where qgpu-scheduler may run on another machine, say there instead of 127.0.0.1 what
       kubectl -n kube-system get service qgpu-scheduler
     shows, https:// and enableHTTPS: true, and a tlsConfig with serverName
     qgpu-scheduler.kube-system.svc and caFile, certFile and keyFile of the Secret $SECRET
     (ca.crt, client.crt, client.key). A managed control plane is configured by its provider's
     means.
Then \`qgpuctl doctor\` says whether it is found.
TEXT
  exit 3
}

while [ $# -gt 0 ]; do
  case "$1" in
    --manifest) MANIFEST=${2:?--manifest FILE}; shift ;;
    --folder) FOLDER=${2:?--folder DIR}; shift ;;
    --remove) act=remove ;;
    --remote) where=remote ;;
    --dry-run) dry=yes ;;
    -h | --help) usage; exit 0 ;;
    *) echo "register.sh: unknown option $1" >&2; usage >&2; exit 2 ;;
  esac
  shift
done

# replace FILE MODE: FILE becomes standard input, at once; never by way of a second file in the
# folder that kubelet reads, where it would be a second kube-scheduler.
replace() {
  mkdir -p "$FOLDER"
  rm -f "$FOLDER/.new"
  (umask 077 && cat >"$FOLDER/.new") # nobody else reads a key before it has its mode
  chmod "$2" "$FOLDER/.new"
  mv "$FOLDER/.new" "$1"
}

if [ ! -f "$MANIFEST" ]; then
  [ "$act" = remove ] && { say "no $MANIFEST: nothing to remove"; exit 0; }
  by_hand "no $MANIFEST on this machine"
fi
ours=no
grep -q "$MARK\$" "$MANIFEST" && ours=yes

if [ "$act" = remove ]; then
  if [ "$ours" = no ]; then
    if grep -qE -e "--(config|policy-config-file)=" "$MANIFEST"; then
      by_hand "$MANIFEST has a configuration that is not from here: take the extender out of it"
    fi
    say "nothing of qgpu in $MANIFEST"
  elif [ "$dry" = yes ]; then
    say "would take qgpu's lines out of $MANIFEST:"
    grep "$MARK\$" "$MANIFEST"
  else
    grep -v "$MARK\$" "$MANIFEST" | replace "$MANIFEST" 600
    rm -f "$FOLDER/kube-scheduler.yaml" "$FOLDER/policy.json" "$FOLDER/ca.crt" \
      "$FOLDER/client.crt" "$FOLDER/client.key"
    rmdir "$FOLDER" 2>/dev/null || true
    say "took qgpu's lines out of $MANIFEST; kubelet starts kube-scheduler anew"
  fi
  exit 0
fi

version=$(sed -n 's/^ *image: *[^ ]*kube-scheduler[^ :]*:v\{0,1\}1\.\([0-9]*\).*/\1/p' "$MANIFEST" |
  head -n 1)
case "$version" in
  '') by_hand "the version of kube-scheduler can't be read from its image in $MANIFEST" ;;
  [0-9] | 1[0-3]) by_hand "kube-scheduler 1.$version is older than 1.14" ;;
  1[4-8]) source=policy.json name=policy.json ;;
  19 | 2[01]) source=config-v1beta1.yaml name=kube-scheduler.yaml ;;
  22) source=config-v1beta2.yaml name=kube-scheduler.yaml ;;
  2[34]) source=config-v1beta3.yaml name=kube-scheduler.yaml ;;
  *) source=config-v1.yaml name=kube-scheduler.yaml ;;
esac
file=$FOLDER/$name
case "$name" in
  policy.json) flags="--policy-config-file=$file --use-legacy-policy-config=true" ;;
  *) flags="--config=$file" ;;
esac

# The manifest with our lines after the three that every static pod of kubeadm has.
with_ours() {
  awk -v flags="$flags" -v folder="$FOLDER" -v mark="$MARK" '
    { print }
    /^ *- kube-scheduler *$/ && !flagged {
      match($0, /^ */); indent = substr($0, 1, RLENGTH)
      n = split(flags, flag, " ")
      for (i = 1; i <= n; i++) print indent "- " flag[i] " " mark
      flagged = 1
    }
    /^ *volumeMounts: *$/ && !mounted {
      match($0, /^ */); indent = substr($0, 1, RLENGTH)
      print indent "- mountPath: " folder " " mark
      print indent "  name: qgpu " mark
      print indent "  readOnly: true " mark
      mounted = 1
    }
    /^ *volumes: *$/ && !held {
      match($0, /^ */); indent = substr($0, 1, RLENGTH)
      print indent "- hostPath: " mark
      print indent "    path: " folder " " mark
      print indent "    type: Directory " mark
      print indent "  name: qgpu " mark
      held = 1
    }
    END { if (!flagged || !mounted || !held) exit 1 }
  ' "$MANIFEST"
}

if [ "$ours" = no ]; then
  if grep -qE -e "--(config|policy-config-file|policy-configmap)=" "$MANIFEST"; then
    by_hand "$MANIFEST names a configuration already"
  fi
  with_ours >/dev/null || by_hand "$MANIFEST is not as kubeadm writes it"
elif ! grep -qF -e "=$file $MARK" "$MANIFEST"; then
  by_hand "$MANIFEST was registered for another version of kube-scheduler: run --remove first"
fi

# The configuration for this machine.
configuration() {
  if [ "$where" = here ]; then
    cat "$HERE/$source"
    return
  fi
  case "$name" in
    policy.json) sed "s|http://127.0.0.1:12345/|https://$service:12345/|
s|^\( *\)\"enableHttps\": false,|\1\"enableHttps\": true,\\
\1\"tlsConfig\": {\"serverName\": \"qgpu-scheduler.kube-system.svc\",\\
\1  \"caFile\": \"$FOLDER/ca.crt\", \"certFile\": \"$FOLDER/client.crt\",\\
\1  \"keyFile\": \"$FOLDER/client.key\"},|" "$HERE/$source" ;;
    *) sed "s|http://127.0.0.1:12345/|https://$service:12345/|
s|^\( *\)enableHTTPS: false|\1enableHTTPS: true\\
\1tlsConfig:\\
\1  serverName: qgpu-scheduler.kube-system.svc\\
\1  caFile: $FOLDER/ca.crt\\
\1  certFile: $FOLDER/client.crt\\
\1  keyFile: $FOLDER/client.key|" "$HERE/$source" ;;
  esac
}
# One file of the Secret.
certificate() {
  $KUBECTL -n kube-system get secret "$SECRET" \
    -o "go-template={{index .data \"$1\" | base64decode}}"
}

changed=no
if [ "$where" = remote ]; then
  # kube-scheduler is of the host's network, and knows no names of the cluster.
  service=$($KUBECTL -n kube-system get service qgpu-scheduler -o 'jsonpath={.spec.clusterIP}') ||
    service=''
  [ -n "$service" ] || by_hand "there is no Service qgpu-scheduler: run install.sh first"
  case "$service" in *:*) service="[$service]" ;; esac
  for part in ca.crt client.crt client.key; do
    held=$(certificate "$part") || by_hand "there is no $part in Secret $SECRET: run install.sh"
    if [ "$held" != "$(cat "$FOLDER/$part" 2>/dev/null)" ]; then
      changed=yes
      if [ "$dry" = yes ]; then say "would write $FOLDER/$part from Secret $SECRET"
      else
        printf '%s\n' "$held" | replace "$FOLDER/$part" 600
        say "wrote $FOLDER/$part"
      fi
    fi
  done
fi
if [ "$(configuration)" != "$(cat "$file" 2>/dev/null)" ]; then
  changed=yes
  if [ "$dry" = yes ]; then say "would write $file from $source"
  else
    configuration | replace "$file" 644
    say "wrote $file"
  fi
fi
if [ "$ours" = no ]; then
  changed=yes
  if [ "$dry" = yes ]; then
    say "would put these lines into $MANIFEST:"
    with_ours | grep "$MARK\$"
  else
    manifest=$(with_ours)
    printf '%s\n' "$manifest" | replace "$MANIFEST" 600
    say "put the extender into $MANIFEST; kubelet starts kube-scheduler anew"
  fi
elif [ "$changed" = yes ] && [ "$dry" = no ]; then
  say "kube-scheduler reads it when it is started again: crictl stop it, or reboot"
fi
[ "$changed" = yes ] || say "registered already: nothing to do"
