{{/* The objects of a manifest, as a JSON list: (list $ "qgpu-manager.yaml"). */}}
{{- define "qgpu.objects" -}}
{{- $objects := list }}
{{- $root := index . 0 }}
{{- range regexSplit "(?m)^---$" ($root.Files.Get (index . 1)) -1 }}
{{- $objects = append $objects (fromYaml .) }}
{{- end }}
{{- toJson $objects }}
{{- end }}

{{/* The image that a manifest calls by a name, in its place and version: (list $ "qgpu/manager").
     kustomization.yaml holds what values.yaml does not say. */}}
{{- define "qgpu.image" -}}
{{- $root := index . 0 }}
{{- $name := index . 1 }}
{{- $asked := get $root.Values.images (base $name) }}
{{- $known := dict }}
{{- range (fromYaml ($root.Files.Get "kustomization.yaml")).images }}
{{- if eq .name $name }}{{ $known = . }}{{ end }}
{{- end }}
{{- $place := $asked.repository | default $known.newName }}
{{- if not $place }}
{{- with $root.Values.images.registry }}
{{- $place = printf "%s/%s" . $name }}
{{- else }}
{{- if ne $root.Values.images.pullPolicy "Never" }}
{{- fail (printf "where is the image %s? Push it to a registry and set images.registry=PREFIX, or load it on every node and set images.pullPolicy=Never" $name) }}
{{- end }}
{{- $place = $name }}
{{- end }}
{{- end }}
{{- if not (or $asked.tag $asked.digest) }}{{ $asked = dict "tag" $known.newTag "digest" $known.digest }}{{ end }}
{{- include "qgpu.reference" (dict "repository" $place "tag" $asked.tag "digest" $asked.digest) }}
{{- end }}

{{/* repository, tag and digest as one name. */}}
{{- define "qgpu.reference" -}}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag }}{{ end }}
{{- end }}

{{/* Puts values over a workload: (list $ WORKLOAD VALUES). Changes it and prints nothing. */}}
{{- define "qgpu.workload" -}}
{{- $values := index . 2 }}
{{- $template := (index . 1).spec.template }}
{{- $pod := $template.spec }}
{{- $main := index $pod.containers 0 }}
{{- with $values.podAnnotations }}
{{- $_ := set $template.metadata "annotations" (mergeOverwrite (default dict $template.metadata.annotations) .) }}
{{- end }}
{{- with $values.podLabels }}
{{- $_ := set $template.metadata "labels" (mergeOverwrite (deepCopy .) $template.metadata.labels) }}
{{- end }}
{{- with (index . 0).Values.images.pullSecrets }}
{{- $names := list }}
{{- range . }}{{ $names = append $names (dict "name" .) }}{{ end }}
{{- $_ := set $pod "imagePullSecrets" $names }}
{{- end }}
{{- range $field := list "nodeSelector" "affinity" }}
{{- with get $values $field }}
{{- $_ := set $pod $field (mergeOverwrite (default dict (get $pod $field)) .) }}
{{- end }}
{{- end }}
{{- with $values.tolerations }}
{{- $_ := set $pod "tolerations" (concat (default list $pod.tolerations) .) }}
{{- end }}
{{- with $values.priorityClassName }}{{ $_ := set $pod "priorityClassName" . }}{{ end }}
{{- with $values.resources }}
{{- $_ := set $main "resources" (mergeOverwrite (default dict $main.resources) .) }}
{{- end }}
{{- with $values.env }}{{ $_ := set $main "env" (concat (default list $main.env) .) }}{{ end }}
{{- with $values.args }}{{ $_ := set $main "command" (concat $main.command .) }}{{ end }}
{{- end }}

{{/* Puts values over one of the two daemons: (list $ WORKLOAD VALUES FLAGS). FLAGS is flag: value. */}}
{{- define "qgpu.daemon" -}}
{{- $root := index . 0 }}
{{- $pod := (index . 1).spec.template.spec }}
{{- range concat $pod.initContainers $pod.containers }}
{{- $_ := set . "image" (include "qgpu.image" (list $root .image)) }}
{{- $_ := set . "imagePullPolicy" $root.Values.images.pullPolicy }}
{{- end }}
{{- $main := index $pod.containers 0 }}
{{- $flags := merge (index . 3) (dict "resource-prefix" $root.Values.resourcePrefix "memory-unit" $root.Values.memoryUnit) }}
{{- range $flag, $value := $flags }}
{{- if $value }}{{ $_ := set $main "command" (append $main.command (printf "--%s=%s" $flag $value)) }}{{ end }}
{{- end }}
{{- include "qgpu.workload" (list $root (index . 1) (index . 2)) }}
{{- end }}

{{/* A pod of the manager that labels nodes itself runs on those that have its label, and on those
     without it on which others found a card of NVIDIA. Changes the pod and prints nothing. */}}
{{- define "qgpu.found-nodes" -}}
{{- $main := index .containers 0 }}
{{- $_ := set $main "command" (append $main.command "--label-node") }}
{{- $terms := list }}
{{- range $label, $value := .nodeSelector }}
{{- $terms = append $terms (dict "matchExpressions" (list
    (dict "key" $label "operator" "In" "values" (list $value)))) }}
{{- range list "nvidia.com/gpu.present" "feature.node.kubernetes.io/pci-10de.present"
    "feature.node.kubernetes.io/pci-0300_10de.present"
    "feature.node.kubernetes.io/pci-0302_10de.present" }}
{{- $terms = append $terms (dict "matchExpressions" (list
    (dict "key" $label "operator" "DoesNotExist")
    (dict "key" . "operator" "In" "values" (list "true")))) }}
{{- end }}
{{- end }}
{{- $_ := unset . "nodeSelector" }}
{{- $_ := set . "affinity" (dict "nodeAffinity" (dict
    "requiredDuringSchedulingIgnoredDuringExecution" (dict "nodeSelectorTerms" $terms))) }}
{{- end }}

{{/* A pod of the manager with a guard in the kernel pins it in the node's bpffs, and looks for the
     cgroups of the node's pods. The rights for both it has. Changes the pod and prints nothing. */}}
{{- define "qgpu.guarded" -}}
{{- $main := index .containers 0 }}
{{- range list (dict "name" "bpf" "at" "/sys/fs/bpf" "readOnly" false)
    (dict "name" "cgroup" "at" "/host/sys/fs/cgroup" "readOnly" true) }}
{{- $mount := dict "name" .name "mountPath" .at "readOnly" .readOnly }}
{{- $_ := set $main "volumeMounts" (append $main.volumeMounts $mount) }}
{{- $folder := dict "type" "Directory" "path" (trimPrefix "/host" .at) }}
{{- $_ := set $ "volumes" (append $.volumes (dict "name" .name "hostPath" $folder)) }}
{{- end }}
{{- end }}

{{/* The names of its objects are fixed, so that daemons and scripts find them. */}}
{{- define "qgpu.namespace" -}}
{{- if ne .Release.Namespace "kube-system" }}
{{- fail (printf "qgpu lives in kube-system: say --namespace kube-system in place of %s" .Release.Namespace) }}
{{- end }}
{{- end }}

{{/* What a kube-scheduler of the cluster's version reads: the extender as register.sh --remote has it,
     a name that pods choose, and a lease of its own. */}}
{{- define "qgpu.kube-scheduler.configuration" -}}
{{- $version := .Capabilities.KubeVersion.Version }}
{{- $generation := "" }}
{{- if semverCompare ">=1.25.0-0" $version }}{{ $generation = "v1" }}
{{- else if semverCompare ">=1.23.0-0" $version }}{{ $generation = "v1beta3" }}
{{- else if semverCompare ">=1.22.0-0" $version }}{{ $generation = "v1beta2" }}
{{- else if semverCompare ">=1.19.0-0" $version }}{{ $generation = "v1beta1" }}
{{- else }}{{ fail (printf "kubeScheduler.enabled needs Kubernetes 1.19 or later; this is %s" $version) }}
{{- end }}
{{- $all := .Files.Get (printf "kube-scheduler/config-%s.yaml" $generation) | fromYaml }}
{{- $_ := unset $all "clientConnection" }}
{{- $_ := set $all "leaderElection" (dict "leaderElect" true "resourceLock" "leases"
    "resourceName" "qgpu-kube-scheduler" "resourceNamespace" "kube-system") }}
{{- $_ := set $all "profiles" (list (dict "schedulerName" .Values.kubeScheduler.schedulerName)) }}
{{- $name := "qgpu-scheduler.kube-system.svc" }}
{{- $host := .Values.scheduler.service.clusterIP | default $name }}
{{- if contains ":" $host }}{{ $host = printf "[%s]" $host }}{{ end }}
{{- $extender := index $all.extenders 0 }}
{{- $_ := set $extender "urlPrefix" (printf "https://%s:12345/scheduler" $host) }}
{{- $_ := set $extender "enableHTTPS" true }}
{{- $folder := "/etc/qgpu/extender" }}
{{- $_ := set $extender "tlsConfig" (dict "serverName" $name "caFile" (print $folder "/ca.crt")
    "certFile" (print $folder "/client.crt") "keyFile" (print $folder "/client.key")) }}
{{- $prefix := .Values.resourcePrefix }}
{{- range $extender.managedResources }}
{{- if $prefix }}{{ $_ := set . "name" (printf "%s/%s" $prefix (base .name)) }}{{ end }}
{{- end }}
{{- toYaml $all }}
{{- end }}
