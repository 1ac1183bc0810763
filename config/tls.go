package config

// ClientAuth says whether clients must show a certificate.
type ClientAuth string

// The kinds of client authentication.
const (
	ClientAuthRequire  ClientAuth = "require"
	ClientAuthOptional ClientAuth = "optional"
)

// ProxyProtocol says whether connections begin with a PROXY header.
type ProxyProtocol string

// The ways to take PROXY headers.
const (
	ProxyOff      ProxyProtocol = "off"
	ProxyOptional ProxyProtocol = "optional"
	ProxyRequired ProxyProtocol = "required"
)

// ListenerTLS is how a side that is listened on speaks TLS. The files are looked at every 10 s, and used once they have changed and are
// in order.
type ListenerTLS struct {
	// PEM file of the certificate and those between it and its authority. Empty: no TLS. Read again when it changes.
	Cert string `yaml:"cert" range:"0..4096"`
	// PEM file of the certificate's key. Read again when it changes.
	Key string `yaml:"key" range:"0..4096"`
	// PEM file of the authorities that sign clients' certificates. Empty: clients are asked for none. Read again when it changes.
	ClientCA string `yaml:"client_ca" range:"0..4096"`
	// With client_ca. require: who shows no certificate gets no connection. optional: who shows one must show a good one.
	ClientAuth ClientAuth `yaml:"client_auth" default:"require" oneof:"require optional"`
	// Oldest version of TLS that is spoken.
	MinVersion string `yaml:"min_version" default:"1.2" oneof:"1.2 1.3"`
}

// UpstreamTLS is how TLS is spoken to an upstream. The files are looked at every 10 s, and used once they have changed and are in order.
type UpstreamTLS struct {
	// PEM file of the authorities that may have signed the upstream's certificate. Empty: those of the system. Read again when it changes.
	CA string `yaml:"ca" range:"0..4096"`
	// PEM file of the certificate that is shown to it. Empty: none is. Read again when it changes.
	Cert string `yaml:"cert" range:"0..4096"`
	// PEM file of that certificate's key. Read again when it changes.
	Key string `yaml:"key" range:"0..4096"`
	// Name that its certificate must have. Empty: the host of url.
	ServerName string `yaml:"server_name" range:"0..253"`
}

// IsZero reports whether nothing is set.
func (t UpstreamTLS) IsZero() bool { return t == UpstreamTLS{} }

func (ch *checker) checkListenerTLS(path string, t ListenerTLS) {
	ch.checkPair(path, t.Cert, t.Key)
	ch.failIf(t.Cert == "" && t.ClientCA != "", under(path, "client_ca"), "needs "+under(path, "cert")+": without it no TLS is spoken",
		quote(t.ClientCA), under(path, "cert"))
}

// checkPair: a certificate is nothing without its key, nor the key without it.
func (ch *checker) checkPair(path, cert, key string) {
	ch.failIf(cert == "" && key != "", under(path, "cert"), "is required with "+under(path, "key"), "")
	ch.failIf(key == "" && cert != "", under(path, "key"), "is required with "+under(path, "cert"), "")
}

func (ch *checker) checkUpstreamTLS(path string, u Upstream) {
	tls := under(path, "tls")
	ch.checkPair(tls, u.TLS.Cert, u.TLS.Key)
	ch.failIf(!u.TLS.IsZero() && !secureURL(u.URL), tls, "needs a url of https://: it would not be used", "", under(path, "url"))
	ch.failIf(!isHost(u.TLS.ServerName), under(tls, "server_name"), "must be a name or an address", quote(u.TLS.ServerName))
}

func (ch *checker) checkProxyProtocol() {
	ch.failIf(ch.ProxyProtocol != ProxyOff && len(ch.TrustedProxies) == 0, "proxy_protocol",
		"must be off unless trusted_proxies names who may send headers", string(ch.ProxyProtocol), "trusted_proxies")
}
