package config

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

// load loads a file's text with variables and flags.
func load(t *testing.T, text string, env, args []string) (*Loaded, Problems) {
	t.Helper()
	if text != "" {
		file := filepath.Join(t.TempDir(), "trivium.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append([]string{"--config", file}, args...)
	}
	var f Flags
	set := pflag.NewFlagSet("test", pflag.ContinueOnError)
	f.Register(set)
	if err := set.Parse(args); err != nil {
		t.Fatal(err)
	}
	l, err := Load(&f, env)
	p, _ := err.(Problems)
	for i := range p {
		p[i].Where = filepath.Base(p[i].Where)
	}
	return l, p
}

func (l *Loaded) where(name string) string { return filepath.Base(l.byName[name].Where) }

func TestDefaultsAreRight(t *testing.T) {
	l, problems := load(t, "", nil, nil)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	c := l.Config
	if c.Node.ID != 1 || c.Node.Data != "./data" || c.AMQP.Listen != "127.0.0.1:5672" || c.MQTT.Listen != "127.0.0.1:1883" ||
		c.Kafka.Listen != "127.0.0.1:9092" || c.HTTP.Listen != "127.0.0.1:15672" || c.Cluster.Listen != "127.0.0.1:7420" ||
		!c.AMQP.TLSListen.Off() || !c.Access.Anonymous || c.Log.Level != "info" {
		t.Errorf("%+v", c)
	}
}

func TestFlagsWinOverEnvironmentOverFile(t *testing.T) {
	l, problems := load(t, `
node: {id: 7, data: /a}
amqp:
  listen: 127.0.0.1:1
mqtt:
  listen: off
  ws_origins:
    - https://a.example.com
    - https://b.example.com
proxy: {trusted: [10.0.0.0/8, "::1"]}
access: {anonymous: false}
tls:
`, []string{"PATH=/bin", "TRIVIUM_NODE_DATA=/b", "TRIVIUM_AMQP_LISTEN=127.0.0.1:2", "TRIVIUM_BIN=x", "TRIVIUM_MQTT_WS_PATH=/x"},
		[]string{"--amqp", "127.0.0.1:3", "--topics-auto-create=false", "--node-drain-timeout", "2s"})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	c := l.Config
	if c.Node.ID != 7 || c.Node.Data != "/b" || c.AMQP.Listen != "127.0.0.1:3" || c.MQTT.Listen != "off" || c.MQTT.WSPath != "/x" ||
		c.Topics.AutoCreate || c.Access.Anonymous || c.Node.DrainTimeout.Seconds() != 2 {
		t.Errorf("%+v", c)
	}
	if !slices.Equal(c.MQTT.WSOrigins, []string{"https://a.example.com", "https://b.example.com"}) || len(c.Proxy.Trusted) != 2 {
		t.Errorf("lists: %v %v", c.MQTT.WSOrigins, c.Proxy.Trusted)
	}
	for name, want := range map[string]string{
		"node.id": "trivium.yaml:2", "mqtt.listen": "trivium.yaml:6", "node.data": "TRIVIUM_NODE_DATA", "amqp.listen": "--amqp", "kafka.listen": "default",
	} {
		if got := l.where(name); got != want {
			t.Errorf("%s comes from %s, want %s", name, got, want)
		}
	}
}

// TestProblemsAreAllTold: each with its place, at one go.
func TestProblemsAreAllTold(t *testing.T) {
	_, problems := load(t, `amqp:
  lisen: 127.0.0.1:1
  listen: 5672
ampq:
  listen: 127.0.0.1:1
node: 3
mqtt:
  ws_path: mqtt
  max_packet: 12
  max_packet: 1024
  proxy_protocol: maybe
kafka:
  advertise: 0.0.0.0:9092
  listen:
proxy:
  trusted: 10.0.0.0/40
`, []string{"TRIVIUM_AMQP_LISEN=x", "TRIVIUM_NODE_ID=one"}, []string{"--log-level", "loud", "--node-drain-timeout", "3 parsecs", "--access-anonymous=maybe"})
	want := []string{
		"trivium.yaml:2 unknown key amqp.lisen", `trivium.yaml:3 amqp.listen "5672" is neither`, "trivium.yaml:4 unknown section ampq", "trivium.yaml:6 node must hold",
		"mqtt.ws_path \"mqtt\" does not begin", "trivium.yaml:9 mqtt.max_packet 12 is not between 1024 and", "trivium.yaml:10 max_packet is there twice", "trivium.yaml:11 mqtt.proxy_protocol \"maybe\" is none of off, optional, required",
		"trivium.yaml:13 kafka.advertise 0.0.0.0:9092 is no address", "trivium.yaml:14 kafka.listen has no value", "trivium.yaml:16 proxy.trusted", "environment unknown setting TRIVIUM_AMQP_LISEN",
		"TRIVIUM_NODE_ID node.id \"one\" is not a whole number", "--log-level log.level \"loud\" is none of", "--node-drain-timeout node.drain_timeout \"3 parsecs\" is no duration", "--access-anonymous access.anonymous",
	}
	var got []string
	for _, p := range problems {
		got = append(got, strings.TrimSpace(p.Where+" "+p.Setting)+" "+p.Text)
	}
	for _, w := range want {
		if !slices.ContainsFunc(got, func(g string) bool { return strings.Contains(strings.Join(strings.Fields(g), " "), w) }) {
			t.Errorf("not told: %s", w)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d problems, want %d:\n%s", len(got), len(want), strings.Join(got, "\n"))
	}
	if line := problems.Error(); strings.Contains(line, "\n") || !strings.Contains(line, "15 more") {
		t.Errorf("%q", line)
	}
}

func TestWhatDoesNotGoTogether(t *testing.T) {
	dir := t.TempDir()
	junk := filepath.Join(dir, "junk.pem")
	if err := os.WriteFile(junk, []byte("junk"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args []string
		want string // "" = nothing
	}{
		{[]string{"--mqtt", "127.0.0.1:5672"}, "mqtt.listen: 127.0.0.1:5672 is taken by amqp.listen"},
		{[]string{"--mqtt", "0.0.0.0:5672"}, "mqtt.listen: 0.0.0.0:5672 is taken by amqp.listen"},
		{[]string{"--mqtt", "127.0.0.2:5672"}, ""},
		{[]string{"--mqtt", "127.0.0.1:0", "--amqp", "127.0.0.1:0"}, ""},
		{[]string{"--mqtt", "off", "--amqp", "off"}, ""},
		{[]string{"--amqp-tls-listen", ":5671"}, "amqp.tls_listen: needs tls.cert and tls.key"},
		{[]string{"--tls-cert", junk}, "tls.cert: needs tls.key"},
		{[]string{"--tls-cert", junk, "--tls-key", junk}, "tls.cert: certificate " + junk},
		{[]string{"--mqtt-proxy-protocol", "required"}, "proxy.trusted: empty, but mqtt.proxy_protocol is required"},
		{[]string{"--mqtt-proxy-protocol", "required", "--proxy-trusted", "10.1.2.3"}, ""},
		{[]string{"--admin-user", "root"}, "admin.user: needs admin.password"},
		{[]string{"--admin-password", "x"}, "admin.user: empty"},
		{[]string{"--admin-user", "root", "--admin-password", "x", "--admin-password-hash", "y"}, "only one of them"},
		{[]string{"--kafka-tls-advertise", "[::]:9093"}, "kafka.tls_advertise: [::]:9093 is no address"},
		{[]string{"--kafka-advertise", "broker"}, "kafka.advertise: \"broker\" is not host:port"},
		{[]string{"--data", ""}, "node.data: empty"},
	} {
		_, problems := load(t, "", nil, test.args)
		if test.want == "" && len(problems) > 0 || test.want != "" && (len(problems) == 0 || !strings.Contains(problems[0].String(), test.want)) {
			t.Errorf("%v: got %v, want %s", test.args, problems, test.want)
		}
	}
}

// TestShow: what is shown is a file that sets the same, but for secrets.
func TestShow(t *testing.T) {
	l, problems := load(t, "", []string{"TRIVIUM_ADMIN_PASSWORD=hush", "TRIVIUM_ADMIN_USER=root"}, []string{"--mqtt-ws-origins", "https://a.example.com,*", "--amqp-heartbeat", "90s"})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	var yaml, text bytes.Buffer
	if err := l.WriteYAML(&yaml); err != nil {
		t.Fatal(err)
	}
	if err := l.WriteJSON(&text); err != nil {
		t.Fatal(err)
	}
	for _, out := range []string{yaml.String(), text.String()} {
		if strings.Contains(out, "hush") || !strings.Contains(out, "********") || !strings.Contains(out, "TRIVIUM_ADMIN_PASSWORD") {
			t.Errorf("a secret: %s", out)
		}
	}
	again, problems := load(t, yaml.String(), nil, nil)
	if len(problems) > 0 {
		t.Fatalf("%v\n%s", problems, &yaml)
	}
	for _, s := range l.Settings {
		if got := again.byName[s.Name].Value(); got != s.Value() {
			t.Errorf("%s: %q, shown as %q", s.Name, s.Value(), got)
		}
		if again.byName[s.Name].Origin != FromFile {
			t.Errorf("%s is not shown", s.Name)
		}
	}
	var parsed map[string]map[string]struct {
		Value any
		From  string
	}
	if err := json.Unmarshal(text.Bytes(), &parsed); err != nil {
		t.Fatal(err)
	}
	if v := parsed["amqp"]["heartbeat"]; v.Value != "1m30s" || v.From != FromFlag {
		t.Errorf("heartbeat %+v", v)
	}
	if v, ok := parsed["proxy"]["trusted"].Value.([]any); !ok || len(v) != 0 {
		t.Errorf("an empty list: %+v", parsed["proxy"]["trusted"])
	}
}

func TestBytes(t *testing.T) {
	for text, want := range map[string]string{"0": "0", "1024": "1KiB", "64MiB": "64MiB", "1 GiB": "1GiB", "1500": "1500", "12B": "12"} {
		var b Bytes
		if err := b.UnmarshalText([]byte(text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if got, _ := b.MarshalText(); string(got) != want {
			t.Errorf("%s: %s", text, got)
		}
	}
	for _, text := range []string{"", "-1", "1MB", "9999999TiB", "x"} {
		var b Bytes
		if err := b.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is %d", text, b)
		}
	}
}

// TestSizesAndDurationsHaveUnits: all settings of bytes or seconds take units, and plain
// numbers, and say what is wrong with anything else.
func TestSizesAndDurationsHaveUnits(t *testing.T) {
	sizes, durations := 0, 0
	for _, s := range newLoaded().Settings {
		good, bad := map[string]string{}, []string{"", "-1", "many", "1.5", "0x10", "10 %", "99999999999999999999"}
		switch s.field.Interface().(type) {
		case Bytes:
			sizes++
			good["1024KiB"], good["1MiB"], good["1048576"] = "1MiB", "1MiB", "1MiB"
			bad = append(bad, "1MB", "1m", "1KiBs", "5s")
		case time.Duration:
			durations++
			good["5"], good["5s"], good["5000ms"] = "5s", "5s", "5s"
			bad = append(bad, "1 day", "5S", "1MiB", "9223372037")
		case int:
			if strings.Contains(s.About, "bytes") || strings.Contains(s.About, "seconds") {
				t.Errorf("%s takes a plain number only: %s", s.Name, s.About)
			}
		}
		if len(good) == 0 {
			continue
		}
		s.lo, s.hi = "", "" // what the bounds are is not what this is about
		for text, want := range good {
			l, problems := load(t, "", []string{s.Env + "=" + text}, nil)
			if got := l.byName[s.Name].Value(); got != want && len(problems) == 0 {
				t.Errorf("%s=%s is %s", s.Env, text, got)
			}
			if err := s.set(text, FromFlag, "--"+s.Flag); err != nil || s.Value() != want {
				t.Errorf("--%s %s: %s %v", s.Flag, text, s.Value(), err)
			}
		}
		for _, text := range bad {
			_, problems := load(t, "", nil, []string{"--" + s.Flag, text})
			if len(problems) != 1 || !strings.HasPrefix(problems[0].String(), s.Name+": ") {
				t.Errorf("--%s %s: %v", s.Flag, text, problems)
			}
		}
	}
	if sizes == 0 || durations == 0 {
		t.Errorf("%d sizes and %d durations", sizes, durations)
	}
}

// TestWhatIsToldInSecondsIsWhole: heartbeats and keep alives have no fractions on the wire.
func TestWhatIsToldInSecondsIsWhole(t *testing.T) {
	l, problems := load(t, "mqtt: {max_keep_alive: 90, max_packet: 65536}\namqp: {heartbeat: 1m, frame_max: 64KiB}\nbacklog: {bytes: 1GiB}\n", nil, nil)
	if c := l.Config; len(problems) > 0 || c.MQTT.MaxKeepAlive != 90*time.Second || c.MQTT.MaxPacket != 1<<16 || c.AMQP.FrameMax != 1<<16 || c.Backlog.Bytes != 1<<30 {
		t.Errorf("%+v %v", c, problems)
	}
	for _, setting := range []string{"amqp.heartbeat", "mqtt.max_keep_alive"} {
		_, problems := load(t, "", nil, []string{"--" + l.byName[setting].Flag, "1500ms"})
		if len(problems) != 1 || !strings.HasPrefix(problems[0].String(), setting+": 1.5s is no whole number of seconds") {
			t.Errorf("%v", problems)
		}
	}
	if _, problems := load(t, "", nil, []string{"--mqtt-max-keep-alive", "20h"}); len(problems) != 1 || !strings.Contains(problems[0].Text, "20h is not between 0s and 65535s") {
		t.Errorf("%v", problems)
	}
	if _, problems := load(t, "", nil, []string{"--disk-low", "1KiB"}); len(problems) != 1 || !strings.Contains(problems[0].Text, "1KiB is less than 1MiB") {
		t.Errorf("%v", problems)
	}
}

var update = flag.Bool("update", false, "write the table of settings into docs/operations.md")

// TestSettingsAreDocumented: the table in docs/operations.md is this one.
// go test ./cmd/trivium/config -update writes it.
func TestSettingsAreDocumented(t *testing.T) {
	const begin, end = "<!-- settings: written by go test ./cmd/trivium/config -update -->\n", "<!-- end of settings -->"
	path := filepath.Join("..", "..", "..", "docs", "operations.md")
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(page), begin)
	table, tail, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatal("docs/operations.md has no place for the table")
	}
	if table == Table() {
		return
	}
	if !*update {
		t.Fatal("the table of settings in docs/operations.md is old: go test ./cmd/trivium/config -update")
	}
	if err := os.WriteFile(path, []byte(head+begin+Table()+end+tail), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestWebOrigins: what no browser sends as an origin is a problem, and not a page that
// may never connect.
func TestWebOrigins(t *testing.T) {
	for _, good := range []string{"*", "null", "https://app.example.com", "http://localhost:8080", "https://[::1]:8443", "https://a.example.com/", "capacitor://localhost"} {
		if _, problems := load(t, "", nil, []string{"--mqtt-ws-origins", good}); len(problems) > 0 {
			t.Errorf("%s: %v", good, problems)
		}
	}
	for _, bad := range []string{
		"app.example.com", "https://", "https://a.example.com/path", "https://a.example.com?q", "https://u@a.example.com", "https://*.example.com",
		"https://a.example.com:", "https://a.example.com:99999", "https://a.example.com:443", "http://a.example.com:80", "//a.example.com", "https://a b",
	} {
		_, problems := load(t, "", nil, []string{"--mqtt-ws-origins", bad})
		if len(problems) != 1 || problems[0].Setting != "mqtt.ws_origins" || !strings.Contains(problems[0].Text, bad) {
			t.Errorf("%s: %v", bad, problems)
		}
	}
}
