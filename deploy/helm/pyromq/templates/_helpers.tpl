{{/* A rule for all servers: what a pod may do, where its files are, and how access control and TLS reach it. */}}

{{- define "pyromq.labels" -}}
app.kubernetes.io/name: pyromq
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "pyromq.secret" -}}
{{ .Values.access.existingSecret | default (printf "%s-users" .Release.Name) }}
{{- end }}

{{- define "pyromq.name-servers" -}}
{{- $release := .Release.Name -}}
{{- $each := list -}}
{{- range $number := until (int .Values.namesrv.replicas) -}}
{{- $each = append $each (printf "%s-namesrv-%d.%s-namesrv:9876" $release $number $release) -}}
{{- end -}}
{{ join ";" $each }}
{{- end }}

{{- define "pyromq.controller" -}}
{{ .Release.Name }}-controller-0.{{ .Release.Name }}-controller:9878
{{- end }}

{{/* -o for each setting */}}
{{- define "pyromq.settings" -}}
{{- range $key, $value := . }}
- -o
- {{ printf "%s=%v" $key $value | quote }}
{{- end }}
{{- end }}

{{- define "pyromq.security-settings" -}}
{{- if .Values.tls.existingSecret }}
{{- include "pyromq.settings" (dict
  "tls.server.mode" "enforcing"
  "tls.server.certPath" "/etc/pyromq/tls/tls.crt"
  "tls.server.keyPath" "/etc/pyromq/tls/tls.key"
  "tls.server.trustCertPath" "/etc/pyromq/tls/ca.crt"
  "tls.server.need.client.auth" "optional"
  "tls.enable" "true"
  "tls.client.authServer" "true"
  "tls.client.certPath" "/etc/pyromq/tls/tls.crt"
  "tls.client.keyPath" "/etc/pyromq/tls/tls.key"
  "tls.client.trustCertPath" "/etc/pyromq/tls/ca.crt") }}
{{- end }}
{{- if .Values.access.enabled }}
{{- include "pyromq.settings" (dict "denyByDefault" "true") }}
{{- end }}
{{- end }}

{{/* Passwords are variables, so that no list of processes shows them. `prefix` is that of the server's variables. */}}
{{- define "pyromq.environment" -}}
- name: POD_IP
  valueFrom: {fieldRef: {fieldPath: status.podIP}}
{{- if .root.Values.access.enabled }}
- name: ADMIN_PASSWORD
  valueFrom: {secretKeyRef: {name: {{ include "pyromq.secret" .root }}, key: admin-password}}
- name: SERVERS_PASSWORD
  valueFrom: {secretKeyRef: {name: {{ include "pyromq.secret" .root }}, key: servers-password}}
- name: PYROMQ_{{ .prefix }}_INIT_AUTHENTICATION_USER
  value: '{"username":"admin","password":"$(ADMIN_PASSWORD)"}'
- name: PYROMQ_{{ .prefix }}_INNER_CLIENT_AUTHENTICATION_CREDENTIALS
  value: '{"accessKey":"servers","secretKey":"$(SERVERS_PASSWORD)"}'
{{- end }}
{{- end }}

{{- define "pyromq.image" -}}
image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- end }}

{{- define "pyromq.container" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
volumeMounts:
  - {name: data, mountPath: /var/lib/pyromq}
  - {name: tmp, mountPath: /tmp}
{{- if .Values.tls.existingSecret }}
  - {name: tls, mountPath: /etc/pyromq/tls, readOnly: true}
{{- end }}
{{- end }}

{{- define "pyromq.probes" -}}
startupProbe:
  httpGet: {path: /health, port: metrics}
  periodSeconds: 5
  failureThreshold: 120   # a large log takes a while to recover
livenessProbe:
  httpGet: {path: /health, port: metrics}
  periodSeconds: 10
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /ready, port: metrics}
  periodSeconds: 5
{{- end }}

{{- define "pyromq.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{- include "pyromq.labels" . | nindent 8 }}
{{- with .root.Values.pullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
volumes:
  - name: tmp
    emptyDir: {sizeLimit: 64Mi}
{{- if .root.Values.tls.existingSecret }}
  - name: tls
    secret: {secretName: {{ .root.Values.tls.existingSecret }}, defaultMode: 0440}
{{- end }}
{{- end }}

{{- define "pyromq.claim" -}}
- metadata: {name: data}
  spec:
    accessModes: [ReadWriteOnce]
    {{- with .class }}
    storageClassName: {{ . }}
    {{- end }}
    resources: {requests: {storage: {{ .size }}}}
{{- end }}
