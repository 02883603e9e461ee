// The roles that have to do with lite topics, which newer releases of the official Go client have; prints a JSON
// line for each event.
//
//	go5lite ENDPOINTS produce TOPIC lite COUNT
//	go5lite ENDPOINTS lite TOPIC GROUP LITE-TOPIC
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

func say(what string, values map[string]any) {
	line := map[string]any{"what": what}
	for name, value := range values {
		line[name] = value
	}
	text, _ := json.Marshal(line)
	fmt.Println(string(text))
}

func must(err error) {
	if err != nil {
		say("failed", map[string]any{"error": err.Error()})
		os.Exit(1)
	}
}

func waitForInput() {
	say("ready", nil)
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
}

func produce(config *rmq.Config, topic string, count int) {
	producer, err := rmq.NewProducer(config, rmq.WithTopics(topic))
	must(err)
	must(producer.Start())
	for number := 0; number < count; number++ {
		message := &rmq.Message{Topic: topic, Body: []byte("lite-" + strconv.Itoa(number))}
		message.SetLiteTopic("session-" + strconv.Itoa(number%2))
		_, err := producer.Send(context.Background(), message)
		must(err)
	}
	waitForInput()
	_ = producer.GracefulStop()
}

func handle(received *rmq.MessageView) rmq.ConsumerResult {
	attempt := received.GetDeliveryAttempt()
	say("received", map[string]any{"body": string(received.GetBody()), "lite": received.GetLiteTopic(), "attempt": attempt})
	if attempt == 1 {
		return rmq.FAILURE
	}
	return rmq.SUCCESS
}

func consume(config *rmq.Config, topic string, group string, lite string) {
	config.ConsumerGroup = group
	consumer, err := rmq.NewLitePushConsumer(config,
		rmq.NewLitePushConsumerConfig(topic, 30*time.Second),
		rmq.WithPushAwaitDuration(5*time.Second),
		rmq.WithPushMessageListener(&rmq.FuncMessageListener{Consume: handle}),
	)
	must(err)
	must(consumer.Start())
	must(consumer.SubscribeLite(lite))
	waitForInput()
	_ = consumer.GracefulStop()
}

func main() {
	os.Setenv("rocketmq.client.logRoot", os.TempDir())
	rmq.ResetLogger()
	config := &rmq.Config{Endpoint: os.Args[1], Credentials: &credentials.SessionCredentials{}}
	if os.Args[2] == "produce" {
		count, _ := strconv.Atoi(os.Args[5])
		produce(config, os.Args[3], count)
	} else {
		consume(config, os.Args[3], os.Args[4], os.Args[5])
	}
}
