package auth

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	paho3 "github.com/eclipse/paho.mqtt.golang"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/trivium-mq/trivium/integration/harness"
	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

// mechanisms are those of Kafka clients, by what librdkafka and kafkajs call them.
var mechanisms = []struct {
	name, js string
	of       func(user, password string) sasl.Mechanism
}{
	{"PLAIN", "plain", func(u, p string) sasl.Mechanism { return plain.Auth{User: u, Pass: p}.AsMechanism() }},
	{"SCRAM-SHA-256", "scram-sha-256", func(u, p string) sasl.Mechanism { return scram.Auth{User: u, Pass: p}.AsSha256Mechanism() }},
	{"SCRAM-SHA-512", "scram-sha-512", func(u, p string) sasl.Mechanism { return scram.Auth{User: u, Pass: p}.AsSha512Mechanism() }},
}

// closed is a node that takes nobody without credentials, with the user "u,=".
func closed(t *testing.T) *node {
	t.Helper()
	settings := broker.DefaultSettings()
	settings.Anonymous = false
	n := start(t, t.TempDir(), func(cfg *broker.Config) { cfg.Settings = settings })
	must(t, n.PutTenant(soon(t), kernel.Tenant{Name: "other"}))
	n.user(t, "u,=")
	n.grant(t, "/", "u,=", ".*", ".*", ".*")
	n.grant(t, "other", "u,=", ".*", ".*", ".*")
	return n
}

// ask makes a Kafka client that logs in, and one request.
func (n *node) ask(t *testing.T, m sasl.Mechanism) error {
	t.Helper()
	c, err := n.OpenKafka(kgo.SASL(m), kgo.RequestRetries(0), kgo.RetryTimeout(time.Millisecond))
	must(t, err)
	defer c.Close()
	_, err = c.Request(soon(t), kmsg.NewPtrMetadataRequest())
	return err
}

// TestKafkaMechanisms: real clients log in with each mechanism, to the default
// tenant and to another, and not with another password.
func TestKafkaMechanisms(t *testing.T) {
	n := closed(t)
	for _, m := range mechanisms {
		t.Run(m.name, func(t *testing.T) {
			for _, user := range []string{"u,=", "other:u,="} {
				must(t, n.ask(t, m.of(user, "u,=")))
			}
			for _, user := range []string{"u,=", "nobody", "none:u,="} {
				if err := n.ask(t, m.of(user, user)); user != "u,=" && !errors.Is(err, kerr.SaslAuthenticationFailed) {
					t.Errorf("%s: %v", user, err)
				}
			}
			if err := n.ask(t, m.of("u,=", "wrong")); !errors.Is(err, kerr.SaslAuthenticationFailed) {
				t.Errorf("a wrong password: %v", err)
			}
			t.Run("kcat", func(t *testing.T) {
				harness.NeedProgram(t, "kcat")
				out := harness.Client(t, time.Minute, "kcat", "-b", n.Kafka, "-X", "security.protocol=sasl_plaintext", "-X", "sasl.mechanism="+m.name,
					"-X", "sasl.username=other:u,=", "-X", "sasl.password=u,=", "-L")
				if !strings.Contains(out, "broker 1 at "+n.Kafka) {
					t.Errorf("kcat says\n%s", out)
				}
			})
			t.Run("kafkajs", func(t *testing.T) {
				harness.NeedNode(t, "kafkajs")
				out := harness.Client(t, time.Minute, "node", "kafkajs_login.js", n.Kafka, m.js, "u,=", "u,=")
				if strings.TrimSpace(out) != "ok" {
					t.Errorf("kafkajs says\n%s", out)
				}
				out = harness.Client(t, time.Minute, "node", "kafkajs_login.js", n.Kafka, m.js, "u,=", "wrong")
				if !strings.Contains(out, "KafkaJSSASLAuthenticationError") {
					t.Errorf("kafkajs says\n%s", out)
				}
			})
		})
	}
	if err := n.ask(t, scram.Auth{User: "guest", Pass: "guest"}.AsSha256Mechanism()); err != nil {
		t.Errorf("the default user has no SCRAM keys: %v", err)
	}
}

// amqplain and a mechanism of any name, for amqp091-go.
type mechanism struct{ name, response string }

func (m mechanism) Mechanism() string { return m.name }
func (m mechanism) Response() string  { return m.response }

func (n *node) dialSASL(t *testing.T, auth ...amqp.Authentication) error {
	t.Helper()
	c, err := amqp.DialConfig("amqp://"+n.AMQP+"/", amqp.Config{SASL: auth, Dial: amqp.DefaultDial(harness.Patience)})
	if err == nil {
		t.Cleanup(func() { _ = c.Close() })
	}
	return err
}

// TestAMQPMechanisms: what is spoken, offered and refused.
func TestAMQPMechanisms(t *testing.T) {
	n := closed(t)
	must(t, n.dialSASL(t, &amqp.AMQPlainAuth{Username: "u,=", Password: "u,="}))
	must(t, n.dialSASL(t, &amqp.PlainAuth{Username: "u,=", Password: "u,="}))
	if err := n.dialSASL(t, &amqp.AMQPlainAuth{Username: "u,=", Password: "wrong"}); amqpCode(t, err) != 403 {
		t.Errorf("AMQPLAIN with a wrong password: %v", err)
	}
	for _, m := range []struct {
		mechanism
		code int // 0 = the client finds that it is not offered
	}{
		{mechanism{"PLAIN", "\x00u,="}, 502}, {mechanism{"PLAIN", "guest\x00u,=\x00u,="}, 502},
		{mechanism{"AMQPLAIN", "\x05LOGIN"}, 502}, {mechanism{"EXTERNAL", ""}, 0}, {mechanism{"ANONYMOUS", ""}, 0},
	} {
		err := n.dialSASL(t, m)
		if m.code == 0 && !errors.Is(err, amqp.ErrSASL) || m.code != 0 && amqpCode(t, err) != m.code {
			t.Errorf("%s %q: %v", m.name, m.response, err)
		}
	}
	t.Run("pika", func(t *testing.T) {
		harness.NeedPython(t, "pika")
		const script = `import pika,sys
c=pika.BlockingConnection(pika.ConnectionParameters(sys.argv[1],int(sys.argv[2]),sys.argv[3],pika.PlainCredentials(sys.argv[4],sys.argv[5])))
c.channel(); c.close(); print("ok")`
		host, port, _ := net.SplitHostPort(n.AMQP)
		if out := harness.Client(t, time.Minute, harness.Python, "-c", script, host, port, "other", "u,=", "u,="); strings.TrimSpace(out) != "ok" {
			t.Error(out)
		}
	})
	t.Run("amqplib", func(t *testing.T) {
		harness.NeedNode(t, "amqplib")
		const script = `const a=require('amqplib');a.connect(process.argv[1]).then(c=>c.close()).then(()=>console.log('ok'))`
		at := "amqp://" + url.UserPassword("u,=", "u,=").String() + "@" + n.AMQP + "/other"
		if out := harness.Client(t, time.Minute, "node", "-e", script, at); strings.TrimSpace(out) != "ok" {
			t.Error(out)
		}
	})
	open := start(t, t.TempDir()) // anonymous from the loopback is guest
	must(t, open.dialSASL(t, mechanism{"ANONYMOUS", "trace"}))
}

// TestCertificates: a client certificate is the user: with EXTERNAL in AMQP,
// without credentials in MQTT and Kafka.
func TestCertificates(t *testing.T) {
	a := harness.NewAuthority(t)
	b, at := harness.StartSecure(t, a, "--tls-client-auth", "request", "--access-anonymous=false")
	trivium := func(args ...string) {
		t.Helper()
		harness.Client(t, time.Minute, append([]string{harness.Binary(t)}, append(args, "--url", "http://"+b.HTTP)...)...)
	}
	trivium("user", "add", "device", "secret")
	trivium("permission", "set", "device", ".*", ".*", ".*")
	external := func(names ...string) error {
		c, err := amqp.DialConfig("amqps://"+at.AMQP+"/", amqp.Config{
			TLSClientConfig: a.Trust(names...), SASL: []amqp.Authentication{&amqp.ExternalAuth{}}, Dial: amqp.DefaultDial(harness.Patience),
		})
		if err == nil {
			_ = c.Close()
		}
		return err
	}
	must(t, external("device"))
	if err := external("stranger"); amqpCode(t, err) != 403 {
		t.Errorf("AMQP, a user who is not: %v", err)
	}
	if err := external(); !errors.Is(err, amqp.ErrSASL) {
		t.Errorf("AMQP, no certificate: %v", err)
	}
	connect := func(user, password string, names ...string) byte {
		o := paho3.NewClientOptions().AddBroker("ssl://" + at.MQTT).SetClientID("c").SetAutoReconnect(false).
			SetProtocolVersion(4).SetTLSConfig(a.Trust(names...)).SetUsername(user).SetPassword(password)
		c := paho3.NewClient(o)
		tok := c.Connect()
		tok.WaitTimeout(harness.Patience)
		c.Disconnect(0)
		return tok.(*paho3.ConnectToken).ReturnCode()
	}
	for _, tc := range []struct {
		user, password string
		names          []string
		want           byte
	}{
		{"", "", []string{"device"}, 0}, {"", "", []string{"stranger"}, 5}, {"", "", nil, 5},
		{"device", "secret", []string{"stranger"}, 0}, {"device", "wrong", []string{"device"}, 4},
	} {
		if got := connect(tc.user, tc.password, tc.names...); got != tc.want {
			t.Errorf("MQTT, %q with %v: %d, want %d", tc.user, tc.names, got, tc.want)
		}
	}
	for name, want := range map[string]bool{"device": true, "stranger": false} {
		c, err := harness.Addresses{Kafka: at.Kafka}.OpenKafka(kgo.DialTLSConfig(a.Trust(name)), kgo.RetryTimeout(time.Millisecond))
		must(t, err)
		_, err = c.Request(soon(t), kmsg.NewPtrMetadataRequest())
		c.Close()
		if (err == nil) != want {
			t.Errorf("Kafka, %s: %v", name, err)
		}
	}
}

// TestAdministratorOfConfiguration: by flag, variable and file, with what
// hash-password prints; then there is no guest.
func TestAdministratorOfConfiguration(t *testing.T) {
	password := filepath.Join(t.TempDir(), "password")
	must(t, os.WriteFile(password, []byte("hidden\n"), 0o600))
	hash := strings.TrimSpace(harness.Client(t, time.Minute, "sh", "-c", harness.Binary(t)+" hash-password < "+password))
	file := filepath.Join(t.TempDir(), "trivium.yaml")
	must(t, os.WriteFile(file, []byte(fmt.Sprintf("admin:\n  user: root\n  password_hash: %q\n", hash)), 0o600))
	for name, args := range map[string][]string{
		"flags": {"--admin-user", "root", "--admin-password-hash", hash}, "variables": nil, "file": {"--config", file},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "variables" {
				t.Setenv("TRIVIUM_ADMIN_USER", "root")
				t.Setenv("TRIVIUM_ADMIN_PASSWORD", "hidden")
			}
			b := harness.Start(t, args...)
			for user, want := range map[string]int{"root:hidden": 0, "root:other": 403, "guest:guest": 403} {
				c, err := amqp.Dial("amqp://" + user + "@" + b.AMQP + "/")
				if code := amqpCode(t, err); code != want {
					t.Errorf("%s: %d, want %d", user, code, want)
				}
				if err == nil {
					_ = c.Close()
				}
			}
		})
	}
}

// TestRow26CredentialBruteForce: semantics row 26. Guesses become slow, then the
// address is refused by every protocol, whoever was there before comes in, and
// the right password does from elsewhere.
func TestRow26CredentialBruteForce(t *testing.T) {
	settings := broker.DefaultSettings()
	settings.Logins.BanAfter, settings.Logins.Floor, settings.Logins.MaxDelay = 12, 50*time.Millisecond, 500*time.Millisecond
	settings.Logins.BanTime = time.Hour
	n := start(t, t.TempDir(), func(cfg *broker.Config) { cfg.Settings = settings })
	n.user(t, "u")
	n.grant(t, "/", "u", ".*", ".*", ".*")
	n.user(t, "known")
	n.grant(t, "/", "known", ".*", ".*", ".*")
	n.dialMQTT(t, "known", "known")
	begun := time.Now()
	for range 4 {
		if _, err := n.openAMQP(t, "u", "wrong", "/"); amqpCode(t, err) != 403 {
			t.Fatalf("AMQP: %v", err)
		}
		if _, reason := n.openMQTT(t, "x", "u", "wrong"); reason != 0x86 {
			t.Fatalf("MQTT: 0x%02x", reason)
		}
		if err := n.ask(t, scram.Auth{User: "u", Pass: "wrong"}.AsSha256Mechanism()); !errors.Is(err, kerr.SaslAuthenticationFailed) {
			t.Fatalf("Kafka: %v", err)
		}
	}
	if took := time.Since(begun); took < 12*50*time.Millisecond+250*time.Millisecond+8*500*time.Millisecond {
		t.Errorf("12 guesses took %v", took)
	}
	if _, reason := n.openMQTT(t, "x", "u", "u"); reason != 0x8a {
		t.Errorf("MQTT after them: 0x%02x", reason)
	}
	if _, err := n.openAMQP(t, "u", "u", "/"); amqpCode(t, err) != 403 {
		t.Errorf("AMQP after them: %v", err)
	}
	if err := n.ask(t, plain.Auth{User: "u", Pass: "u"}.AsMechanism()); !errors.Is(err, kerr.SaslAuthenticationFailed) {
		t.Errorf("Kafka after them: %v", err)
	}
	n.dialMQTT(t, "known", "known")
	begun = time.Now()
	if _, err := n.Authenticate(soon(t), "", "u", "u", &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)}); err != nil || time.Since(begun) > time.Second {
		t.Errorf("from elsewhere: %v after %v", err, time.Since(begun))
	}
}
