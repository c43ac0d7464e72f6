package config

import (
	"net/url"
	"strconv"
	"strings"
	"time"
)

// MQTT is the front-end for MQTT 3.1.1 and 5.
type MQTT struct {
	Listen           Address       `key:"listen" default:"127.0.0.1:1883" flag:"mqtt" about:"MQTT ''host:port''"`
	TLSListen        Address       `key:"tls_listen" default:"off" about:"MQTT over TLS ''host:port'', usually 8883"`
	WSListen         Address       `key:"ws_listen" default:"off" about:"MQTT over WebSocket ''host:port'', usually 8083"`
	WSSListen        Address       `key:"wss_listen" default:"off" about:"MQTT over WebSocket over TLS ''host:port'', usually 8084"`
	WSPath           string        `key:"ws_path" default:"/mqtt" about:"''path'' of the WebSocket address"`
	WSOrigins        []string      `key:"ws_origins" about:"web ''origins'' whose pages may connect besides those of the same host, such as https://app.example.com; * is any"`
	ProxyProtocol    string        `key:"proxy_protocol" default:"off" choice:"off|optional|required" about:"PROXY header at the beginning of MQTT connections"`
	ClientAuth       string        `key:"client_auth" choice:"|off|request|require" about:"client certificates of MQTT over TLS; empty is tls.client_auth"`
	CertificateFirst bool          `key:"certificate_first" default:"false" about:"a client certificate says who an MQTT client is even when it sends a user name"`
	MaxConnections   int           `key:"max_connections" default:"0" min:"0" max:"10000000" about:"MQTT connections open at one time, 0 = no limit of its own"`
	MaxPacket        Bytes         `key:"max_packet" default:"16MiB" min:"1024" max:"268435455" about:"largest packet"`
	ReceiveMaximum   int           `key:"receive_maximum" default:"4096" min:"1" max:"65535" about:"publishes that a client may have unacknowledged"`
	MaxKeepAlive     time.Duration `key:"max_keep_alive" default:"0s" min:"0s" max:"65535s" about:"longest keep alive, whole seconds; 0 = no limit"`
}

func (m *MQTT) check(p *problems) {
	wholeSeconds(p, "mqtt.max_keep_alive", m.MaxKeepAlive)
	if m.WSPath == "" || m.WSPath[0] != '/' {
		p.add("mqtt.ws_path", "%q does not begin with /", m.WSPath)
	}
	for _, origin := range m.WSOrigins {
		if wrong := originProblem(origin); wrong != "" {
			p.add("mqtt.ws_origins", "%q %s", origin, wrong)
		}
	}
}

// originProblem says what is wrong with a web origin as browsers write it (RFC 6454
// section 7): scheme://host or scheme://host:port. "" is nothing; so are * and null,
// the origin of pages from files.
func originProblem(origin string) string {
	if origin == "*" || origin == "null" {
		return ""
	}
	u, err := url.Parse(strings.TrimSuffix(origin, "/"))
	switch {
	case err != nil || u.Scheme == "" || u.Hostname() == "":
		return "is no origin such as https://app.example.com"
	case u.User != nil || u.Path != "" || u.RawQuery != "" || u.ForceQuery || strings.Contains(origin, "#"):
		return "has more than scheme, host and port: it matches no page"
	case strings.Contains(u.Host, "*"):
		return "has a *: hosts are named one by one"
	case strings.HasSuffix(u.Host, ":"), u.Port() != "" && !validPort(u.Port()):
		return "has no valid port"
	case u.Scheme == "http" && u.Port() == "80", u.Scheme == "https" && u.Port() == "443":
		return "names the port that browsers leave out: it matches no page"
	}
	return ""
}

func validPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return err == nil && n > 0
}
