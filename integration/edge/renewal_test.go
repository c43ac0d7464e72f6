package edge

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	mqtt "github.com/eclipse/paho.mqtt.golang"
	amqp "github.com/rabbitmq/amqp091-go"
	"golang.org/x/sync/errgroup"

	"github.com/trivium-mq/trivium/integration/harness"
)

// client is one connection of the crowd; use does something over it that the
// broker answers.
type client struct {
	use   func() error
	close func()
}

func amqpClient(addr string, config *tls.Config, i int) (client, error) {
	conn, err := dialAMQPS(addr, config)
	if err != nil {
		return client{}, err
	}
	ch, err := conn.Channel()
	if err == nil {
		err = ch.Confirm(false)
	}
	use := func() error {
		confirm, err := ch.PublishWithDeferredConfirm("", fmt.Sprintf("crowd-%d", i%10), false, false, amqp.Publishing{DeliveryMode: 2})
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
		defer cancel()
		if ok, err := confirm.WaitContext(ctx); !ok || err != nil {
			return fmt.Errorf("confirmed %v: %w", ok, err)
		}
		return nil
	}
	return client{use, func() { conn.Close() }}, err
}

func mqttClient(url string, config *tls.Config, i int) (client, error) {
	lost := make(chan error, 1)
	c, err := dialMQTT(url, fmt.Sprintf("crowd-%d", i), config, func(o *mqtt.ClientOptions) {
		o.SetConnectionLostHandler(func(_ mqtt.Client, err error) { lost <- err })
	})
	if err != nil {
		return client{}, err
	}
	use := func() error {
		select {
		case err := <-lost:
			return fmt.Errorf("connection lost: %w", err)
		default:
		}
		tok := c.Publish("crowd", 1, false, "x")
		if !tok.WaitTimeout(harness.Patience) {
			return fmt.Errorf("no PUBACK")
		}
		return tok.Error()
	}
	return client{use, func() { c.Disconnect(0) }}, nil
}

// kafkaClient asks for metadata (version 0, no topics made) over a bare
// connection, since a library would connect again behind our back.
func kafkaClient(addr string, config *tls.Config) (client, error) {
	c, err := tls.Dial("tcp", addr, config)
	if err != nil {
		return client{}, err
	}
	request := []byte{0, 0, 0, 18, 0, 3, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 1, 0, 2, 'n', 'o'}
	use := func() error {
		if err := c.SetDeadline(time.Now().Add(harness.Patience)); err != nil {
			return err
		}
		if _, err := c.Write(request); err != nil {
			return err
		}
		var size [8]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return err
		}
		if id := binary.BigEndian.Uint32(size[4:]); id != 7 {
			return fmt.Errorf("answer to request %d", id)
		}
		_, err := io.CopyN(io.Discard, c, int64(binary.BigEndian.Uint32(size[:4]))-4)
		return err
	}
	return client{use, func() { c.Close() }}, nil
}

// crowd connects n clients with TLS, of all protocols in turn.
func crowd(t *testing.T, at harness.Secure, config *tls.Config, n int) []client {
	t.Helper()
	all := make([]client, n)
	var g errgroup.Group
	g.SetLimit(50)
	for i := range all {
		g.Go(func() (err error) {
			switch i % 4 {
			case 0:
				all[i], err = amqpClient(at.AMQP, config, i)
			case 1:
				all[i], err = mqttClient("ssl://"+at.MQTT, config, i)
			case 2:
				all[i], err = kafkaClient(at.Kafka, config)
			default:
				all[i], err = mqttClient("wss://"+at.WSS+"/mqtt", config, i)
			}
			return err
		})
	}
	harness.Must(t, g.Wait())
	t.Cleanup(func() {
		var g errgroup.Group
		g.SetLimit(50)
		for _, c := range all {
			g.Go(func() error { c.close(); return nil })
		}
		_ = g.Wait()
	})
	return all
}

// useAll lets every client do something.
func useAll(all []client) error {
	var g errgroup.Group
	g.SetLimit(50)
	for i, c := range all {
		g.Go(func() error {
			if err := c.use(); err != nil {
				return fmt.Errorf("client %d: %w", i, err)
			}
			return nil
		})
	}
	return g.Wait()
}

// shown is the common name of the certificate that a listener shows.
func shown(addr string, config *tls.Config) string {
	c, err := tls.Dial("tcp", addr, config)
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	return c.ConnectionState().PeerCertificates[0].Subject.CommonName
}

// TestCertificatesReplacedUnder1000Connections: none is dropped, traffic goes on,
// new connections see the new certificate; a bad one changes nothing.
func TestCertificatesReplacedUnder1000Connections(t *testing.T) {
	a := harness.NewAuthority(t)
	b, at := harness.StartSecure(t, a)
	all := crowd(t, at, a.Trust(), 1000)
	harness.Must(t, useAll(all))

	traffic, stop := make(chan error, 1), make(chan struct{})
	go func() { // meanwhile
		for {
			if err := useAll(all); err != nil {
				traffic <- err
				return
			}
			select {
			case <-stop:
				traffic <- nil
				return
			default:
			}
		}
	}()
	a.Server("second")
	for _, addr := range []string{at.AMQP, at.MQTT, at.Kafka, at.HTTP, at.WSS} {
		harness.Wait(t, harness.Patience, "the second certificate", func() bool { return shown(addr, a.Trust()) == "second" })
	}
	cert, _ := a.Server("third")
	process, err := os.FindProcess(b.PID())
	harness.Must(t, err)
	harness.Must(t, process.Signal(syscall.SIGHUP))
	harness.Wait(t, harness.Patience, "the third certificate", func() bool { return shown(at.AMQP, a.Trust()) == "third" })

	harness.Must(t, os.WriteFile(cert, []byte("no certificate"), 0o600))
	harness.Wait(t, harness.Patience, "a line about the bad certificate", func() bool {
		return strings.Contains(b.Output(), "ERR the TLS certificate stays as it is")
	})
	if name := shown(at.MQTT, a.Trust()); name != "third" {
		t.Errorf("after a bad certificate: %s", name)
	}
	close(stop)
	if err := <-traffic; err != nil {
		t.Errorf("traffic meanwhile: %v", err)
	}
	if err := useAll(all); err != nil {
		t.Errorf("traffic afterwards: %v", err)
	}
	metrics := string(get(t, b.HTTP, "/metrics"))
	for _, want := range []string{`trivium_tls_reloads_total{result="kept"} 1`, "trivium_tls_certificate_expiry_timestamp_seconds 1.", `trivium_listener_connections{listener="kafka/ssl"} 250`} {
		if !strings.Contains(metrics, want) {
			t.Errorf("/metrics lacks %s", want)
		}
	}
}

// TestClusterCertificateExpiry: the metrics tell when the certificate for other nodes ends.
func TestClusterCertificateExpiry(t *testing.T) {
	a := harness.NewAuthority(t)
	address, err := harness.FreeAddress()
	harness.Must(t, err)
	cert, key := a.Node("1", "127.0.0.1")
	b := harness.Start(t, "--node-id", "1", "--cluster", address, "--cluster-ca", a.CA, "--cluster-cert", cert, "--cluster-key", key)
	until := time.Unix(int64(metric(t, b.HTTP, "trivium_cluster_certificate_expiry_timestamp_seconds")), 0)
	if left := time.Until(until); left < 29*24*time.Hour || left > 31*24*time.Hour {
		t.Errorf("it ends at %v", until)
	}
}
