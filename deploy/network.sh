# Sourced by scripts that download packages. pip and Node.js trust only their own certificates. The certificate of a company proxy
# that inspects TLS is in the bundle of the system, so use that bundle unless the user has configured another one.
bundle=
for file in /etc/ssl/ca-bundle.pem /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/certs/ca-certificates.crt; do
    [ ! -r "$file" ] || bundle=$file
done
if [ -n "$bundle" ]; then
    if ! grep -Eqs '^ *cert *=' /etc/pip.conf /etc/xdg/pip/pip.conf "$HOME/.config/pip/pip.conf" "$HOME/.pip/pip.conf" \
        "${PIP_CONFIG_FILE:-/dev/null}"; then
        export PIP_CERT="${PIP_CERT:-$bundle}"
    fi
    export NODE_EXTRA_CA_CERTS="${NODE_EXTRA_CA_CERTS:-$bundle}" # npm
fi
