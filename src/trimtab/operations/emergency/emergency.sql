-- Emergencies in a city: what is reported, who is where, and seven channels that tell people what concerns them.
-- Run it with:  trimtab active run examples/emergency.sql

CREATE ACTIVE DATASET Reports (
    reportId STRING, event STRING, district STRING, x DOUBLE, y DOUBLE, message STRING OPTIONAL
) KEY reportId;
CREATE DATASET Users (userId STRING, x DOUBLE, y DOUBLE) KEY userId;
CREATE DATASET Shelters (shelterId STRING, district STRING, x DOUBLE, y DOUBLE, beds INT) KEY shelterId;

CREATE FEED reports INTO Reports FROM HTTP;
CREATE FEED locations INTO Users FROM HTTP;
CREATE FEED shelters INTO Shelters FROM HTTP;
START FEED reports;
START FEED locations;
START FEED shelters;

CREATE CHANNEL EmergencyOfType(event STRING) PERIOD 10 SECONDS AS
SELECT r.* FROM Reports r WHERE r.event = :event;

CREATE CHANNEL EmergencyAtLocation(district STRING) PERIOD 20 SECONDS AS
SELECT r.* FROM Reports r WHERE r.district = :district;

CREATE CHANNEL EmergencyNearMe(user STRING) PERIOD 10 SECONDS AS
SELECT r.*, distance(r.x, r.y, u.x, u.y) AS away_m
FROM Reports r, Users u
WHERE u.userId = :user AND distance(r.x, r.y, u.x, u.y) <= 1000;

CREATE CHANNEL EmergencyOfTypeNearMe(event STRING, user STRING) PERIOD 10 SECONDS AS
SELECT r.*, distance(r.x, r.y, u.x, u.y) AS away_m
FROM Reports r, Users u
WHERE r.event = :event AND u.userId = :user AND distance(r.x, r.y, u.x, u.y) <= 1000;

CREATE CHANNEL EmergencyOfTypeAtLocation(event STRING, district STRING) PERIOD 30 SECONDS AS
SELECT r.* FROM Reports r WHERE r.event = :event AND r.district = :district;

CREATE CHANNEL EmergencyOfTypeWithShelterNearMe(event STRING, user STRING) PERIOD 10 SECONDS AS
SELECT r.reportId, r.event, r.x, r.y, r.message,
       collect_list(named_struct('shelterId', h.shelterId, 'x', h.x, 'y', h.y)) AS shelters
FROM Reports r
JOIN Users u ON distance(r.x, r.y, u.x, u.y) <= 1000
LEFT JOIN Shelters h ON distance(h.x, h.y, u.x, u.y) <= 1500
WHERE r.event = :event AND u.userId = :user
GROUP BY r.reportId, r.event, r.x, r.y, r.message;

CREATE CHANNEL EmergencyOfTypeAtLocationWithShelter(event STRING, district STRING) PERIOD 30 SECONDS AS
SELECT r.reportId, r.event, r.district, r.x, r.y, r.message, collect_list(h.shelterId) AS shelters
FROM Reports r LEFT JOIN Shelters h ON h.district = r.district
WHERE r.event = :event AND r.district = :district
GROUP BY r.reportId, r.event, r.district, r.x, r.y, r.message;
