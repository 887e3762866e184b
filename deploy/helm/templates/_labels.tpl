{{- define "mqbridge.selector" -}}
app.kubernetes.io/name: mqbridge
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "mqbridge.metadata" -}}
namespace: {{ .Release.Namespace }}
labels:
  {{- include "mqbridge.selector" . | nindent 2 }}
  app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{- define "mqbridge.on-ibm-mq" -}}
{{- if eq (.Values.configuration.queue_manager.type | default "embedded") "ibm" }}yes{{ end }}
{{- end }}
