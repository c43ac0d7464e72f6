package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFlagsWinOverEnvironmentOverFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "trivium.yaml")
	if err := os.WriteFile(file, []byte("node:\n  id: 7\n  data: /a\namqp:\n  listen: 127.0.0.1:1\nmqtt:\n  listen: off\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := defaultConfig()
	if err := c.loadFile(file); err != nil {
		t.Fatal(err)
	}
	if err := c.loadEnv([]string{"PATH=/bin", "TRIVIUM_NODE_DATA=/b", "TRIVIUM_AMQP_LISTEN=127.0.0.1:2", "TRIVIUM_BIN=x"}); err != nil {
		t.Fatal(err)
	}
	if c.Node.ID != 7 || c.Node.Data != "/b" || c.AMQP.Listen != "127.0.0.1:2" || c.MQTT.Listen != "off" {
		t.Fatalf("got %+v", c)
	}
	if err := c.validate(); err != nil {
		t.Fatal(err)
	}
}

func TestUnknownKeysAreErrors(t *testing.T) {
	file := filepath.Join(t.TempDir(), "trivium.yaml")
	for _, text := range []string{"amqp:\n  lisen: 127.0.0.1:1\n", "ampq:\n  listen: 127.0.0.1:1\n", "node: 3\n"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c := defaultConfig()
		if err := c.loadFile(file); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: want an error of one line, got %v", text, err)
		}
	}
	c := defaultConfig()
	for _, kv := range []string{"TRIVIUM_AMQP_LISEN=x", "TRIVIUM_NODE_ID=one"} {
		if err := c.loadEnv([]string{kv}); err == nil {
			t.Errorf("%s: want an error", kv)
		}
	}
}

func TestInvalidSettingsAreNamed(t *testing.T) {
	cases := map[string]func(*Config){
		"node.id":         func(c *Config) { c.Node.ID = 0 },
		"node.data":       func(c *Config) { c.Node.Data = "" },
		"amqp.listen":     func(c *Config) { c.AMQP.Listen = "5672" },
		"kafka.listen":    func(c *Config) { c.Kafka.Listen = "127.0.0.1:99999" },
		"kafka.advertise": func(c *Config) { c.Kafka.Advertise = "0.0.0.0:9092" },
		"log.level":       func(c *Config) { c.Log.Level = "loud" },
		"log.format":      func(c *Config) { c.Log.Format = "xml" },
	}
	for name, spoil := range cases {
		c := defaultConfig()
		spoil(&c)
		if err := c.validate(); err == nil || !strings.HasPrefix(err.Error(), name) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
