package config

import (
	"strings"
	"testing"
)

func TestClusterSettings(t *testing.T) {
	for _, tt := range []struct {
		name string
		args []string
		want string // of the problem, "" = none
	}{
		{"the default", nil, ""},
		{"on the loopback", []string{"--cluster", "127.0.0.2:7420", "--join", "127.0.0.1:7420,127.0.0.3:7420"}, ""},
		{"join without listener", []string{"--cluster", "off", "--join", "127.0.0.1:7420"}, "cluster.join: needs cluster.listen"},
		{"no port", []string{"--join", "127.0.0.1"}, `cluster.join: "127.0.0.1" is no host:port`},
		{"any host", []string{"--join", "0.0.0.0:7420"}, `cluster.join: "0.0.0.0:7420" is a wildcard address`},
		{"advertised as any host", []string{"--advertise", "[::]:7420"}, `cluster.advertise: "[::]:7420" is a wildcard address: it cannot be advertised`},
		{"advertised badly", []string{"--advertise", "h:0"}, `cluster.advertise: "h:0" has no valid port`},
		{"beyond the loopback", []string{"--cluster", "10.0.0.1:7420"}, "cluster.listen: 10.0.0.1:7420 is beyond the loopback"},
		{"advertised beyond the loopback", []string{"--advertise", "10.0.0.1:7420"}, "cluster.advertise: 10.0.0.1:7420 is beyond the loopback"},
		{"everywhere", []string{"--cluster", ":7420"}, "cluster.listen: :7420 is no address"},
		{"half a certificate", []string{"--cluster-ca", "x"}, "cluster.cert: cluster.ca"},
		{"no such files", []string{"--cluster-ca", "x", "--cluster-cert", "y", "--cluster-key", "z"}, "cluster.cert: "},
		{"too quick", []string{"--cluster-heartbeat", "1ms"}, "cluster.heartbeat: "},
	} {
		_, problems := load(t, "", nil, tt.args)
		if tt.want == "" && len(problems) > 0 || tt.want != "" && (len(problems) == 0 || !strings.HasPrefix(problems[0].String(), tt.want)) {
			t.Errorf("%s: %v", tt.name, problems)
		}
	}
}
